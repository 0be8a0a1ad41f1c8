"""Every error a user can cause: one root class, each message says what came, what was expected, and the fix."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""``text`` as one line in UTF-8: line breaks, and bytes of file names that are no UTF-8, are escaped.

    >>> printable("a\nb\udcff")
    'a\\nb\\xff'
    """
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte of a file name that it cannot decode
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


class NhwcError(Exception):
    """Root of all errors raised by nhwc."""


class FormatError(NhwcError, ValueError):
    """A memory format, shape or stride that cannot be used together (for example channels last for a 3-D tensor)."""


class ConversionError(NhwcError):
    """A model that cannot be converted; the message names the parameter and the reason, and the model is untouched."""


class TargetError(NhwcError):
    """A command-line target, input, picture or device that cannot be used."""


class ModelError(NhwcError):
    """The user's own model or step raised; the original exception is the cause."""


class RecordingError(NhwcError):
    """The recorder cannot run here, for example because this torch lacks an interface it reads."""


class SchemaError(NhwcError):
    """A saved file that is not ours, is damaged, or comes from a newer nhwc."""


class RegistryError(NhwcError):
    """A key that is unknown, of the wrong type, or registered twice."""


class VariantError(NhwcError):
    """A variant cannot be had on this device."""


class DistributedError(NhwcError):
    """Ranks that cannot meet, hold different layouts, or a model that cannot be wrapped, sharded, saved or loaded."""


class DataError(NhwcError, ValueError):
    """A data set, a batch or an option of the input path that cannot be used."""


class UnreadableImageError(DataError):
    """A picture that cannot be read. name: which one; reason: what is wrong with it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot read the picture {printable(name)}: {printable(reason)}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreadableImageError], tuple[str, str]]:
        return type(self), (self.name, self.reason)


class EngineError(NhwcError):
    """A model that the engine cannot take, or a use that it does not allow; the message has the line and the reason."""


class PlanError(NhwcError):
    """A plan that does not hold for this model and call, or a model that cannot be planned; the message says why."""


class TrainingError(NhwcError):
    """A training run that cannot start or go on: settings, data, a loss that is no number; the message has the fix."""


class CheckpointError(NhwcError):
    """A checkpoint that cannot be written, read, or used for this run; those that are there stay as they were."""
