"""Kernels switched on for the time of a command, by the words of a command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from nhwc import kernels
from nhwc.variants import parse

#: The word for every kernel.
ALL = "all"


@contextlib.contextmanager
def kernels_on(names: Sequence[str], device: torch.device) -> Iterator[None]:
    """``nhwc.kernels.use`` inside the block: of the named kernels, of all for the name "all", of none for no name.

    Raises RegistryError for a name that no kernel has, VariantError where none runs on ``device``.

    >>> with kernels_on(["pad"], torch.device("cpu")):
    ...     kernels.active()
    ('pad',)
    """
    if not names:
        yield
        return
    parse("channels_last+kernels", device)
    with kernels.use(*(() if ALL in names else names)):
        yield
