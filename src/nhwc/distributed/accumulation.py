"""Gradients that stay on their rank for some backward passes, to be reduced once at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nhwc.distributed.wrappers import is_sharded, unwrap


@contextmanager
def accumulating(model: nn.Module) -> Iterator[None]:
    """Inside, backward adds gradients up without a word between the ranks; the next backward outside reduces the sum.

    The forward pass belongs inside too. It is ``no_sync`` of DistributedDataParallel, ``set_requires_gradient_sync``
    of a fully sharded model, and nothing for a model on one process.
    """
    wrapped = _replicated(model)
    core = unwrap(model)
    if wrapped is not None:
        with wrapped.no_sync():
            yield
    elif is_sharded(core):
        core.set_requires_gradient_sync(False)  # type: ignore[operator]
        try:
            yield
        finally:
            core.set_requires_gradient_sync(True)  # type: ignore[operator]
    else:
        yield


def _replicated(model: nn.Module) -> DistributedDataParallel | None:
    if isinstance(model, DistributedDataParallel):
        return model
    inner = dict(model.named_children()).get("_orig_mod")
    return inner if isinstance(inner, DistributedDataParallel) else None
