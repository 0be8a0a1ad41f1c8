"""What a run is asked to do otherwise than the run whose checkpoint it goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nhwc.training.settings import TrainSettings
from nhwc.training.spelling import spelled

#: Settings that say where and how a run shows itself, not what it learns.
_OUTSIDE = "folder resume evaluate_only measure_s device workers print_every save_every tensorboard".split()

#: What an evaluation depends on, besides the weights.
_JUDGED = "arch data evaluate samples classes size mean std seed amp".split()


def note_on_settings(before: Mapping[str, Any], settings: TrainSettings) -> list[str]:
    """A sentence that lists what differs from the settings ``before``, of a checkpoint; none where nothing does."""
    now = settings.as_plain()
    names = _JUDGED if settings.evaluate_only else [name for name in now if name not in _OUTSIDE]
    changed = [
        f"{spelled(name)} {_word(before[name])} → {_word(now[name])}"
        for name in names
        if name in before and before[name] != now[name]
    ]
    if not changed:
        return []
    return [f"not as in the checkpoint: {', '.join(changed)}; give every setting again that shall stay"]


def note_on_classes(before: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """A sentence where the classes are as many as the checkpoint's, but others."""
    if before is None or len(before) != len(names) or list(before) == list(names):
        return []
    number = next(number for number, pair in enumerate(zip(before, names, strict=True)) if pair[0] != pair[1])
    return [f"class {number} is {names[number]}, in the checkpoint it was {before[number]}: compare the data"]


def hint_on_model(before: Mapping[str, Any], classes: Sequence[str] | None, settings: TrainSettings, count: int) -> str:
    """What the checkpoint's model was, where it was another; begins with a semicolon, or is empty."""
    arch, hints = before.get("arch"), ""
    if arch is not None and arch != settings.arch:
        hints += f"; it was of {arch}; give {spelled('arch')} {arch}"
    if classes is not None and len(classes) != count:
        hints += f"; it had {len(classes)} classes, now {count}"
    return hints


def _word(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
