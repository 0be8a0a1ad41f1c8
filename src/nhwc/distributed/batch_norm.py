"""Batch norm over the batches of all ranks, in channels last, on CPUs with gloo as on GPUs with NCCL."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from nhwc.distributed.normalization import Held, Intercepted, group_size, normalize, track, whole_batch
from nhwc.errors import DistributedError

ModelT = TypeVar("ModelT", bound=nn.Module)


class _Synchronized(_BatchNorm):
    """Batch norm whose mean and variance in training are those of the batches of all ranks together."""

    held: Held

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 torch's own word for it
        """(N, C, ...) → the same shape and format. N may differ between the ranks, and be 0 on some."""
        if not _uses_batch(self) or group_size(self.held) == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        statistics = whole_batch(input, self.held)
        if self.training and self.running_mean is not None and self.running_var is not None:
            share = self.momentum
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if share is None:  # torch's word for the plain average over all batches
                    share = 1.0 / float(self.num_batches_tracked)
            assert share is not None
            track(self.running_mean, self.running_var, share, statistics)
        return normalize(input, self.weight, self.bias, statistics, self.eps, self.held)


class _SynchronizedInside(_BatchNorm):
    """The same for a class with a ``forward`` of its own, which calls ``torch.nn.functional.batch_norm``."""

    held: Held

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """What the class itself computes, on the statistics of all ranks."""
        if not _uses_batch(self) or group_size(self.held) == 1:
            return super().forward(*args, **kwargs)
        with Intercepted(self.held) as calls:
            result = super().forward(*args, **kwargs)
        if not calls.seen:
            name = type(self).__mro__[2].__name__
            raise DistributedError(
                f"sync_batch_norm: the forward of {name} does not call torch.nn.functional.batch_norm, and this rank "
                "has normalized its batch alone; use nn.BatchNorm1d, 2d or 3d in its place"
            )
        return result


def _uses_batch(layer: _BatchNorm) -> bool:
    return layer.training or layer.running_mean is None or layer.running_var is None


class SynchronizedBatchNorm1d(_Synchronized, nn.BatchNorm1d):
    """``nn.BatchNorm1d`` over all ranks."""


class SynchronizedBatchNorm2d(_Synchronized, nn.BatchNorm2d):
    """``nn.BatchNorm2d`` over all ranks."""


class SynchronizedBatchNorm3d(_Synchronized, nn.BatchNorm3d):
    """``nn.BatchNorm3d`` over all ranks."""


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: SynchronizedBatchNorm1d,
    nn.BatchNorm2d: SynchronizedBatchNorm2d,
    nn.BatchNorm3d: SynchronizedBatchNorm3d,
}


def sync_batch_norm(model: ModelT, group: Any | None = None) -> ModelT:
    """Let every batch norm of ``model`` see the batches of all ranks in training, in place; returns the model.

    Layers stay the objects they are, with their parameters, buffers, hooks and names; only their class changes, to one
    derived from the class they had, also where that has a ``forward`` of its own, as timm's ``BatchNormAct2d``.
    Results, gradients and running statistics are those of one process on the whole batch, where the loss of the whole
    is the mean of the ranks' losses, as DistributedDataParallel takes it. Call it before ``data_parallel`` or
    ``fully_shard``. On one process, and in evaluation, the layers work as before.

    group: a process group; by default all ranks.

    Raises DistributedError, by name, for a batch norm that is lazy, or torch's own SyncBatchNorm; nothing is changed
    then.

    >>> sync_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))[1]
    SynchronizedBatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """
    layers = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, _BatchNorm) and not isinstance(module, _Synchronized | _SynchronizedInside)
    ]
    for path, module in layers:
        _require_known(path, module)
    for _, module in layers:
        module.__class__ = _class_for(type(module))  # type: ignore[assignment]
        vars(module)["held"] = Held(group)
    return model


def _require_known(path: str, module: _BatchNorm) -> None:
    what = f"sync_batch_norm: {path or 'the model'} ({type(module).__name__})"
    if any(is_lazy(tensor) for tensor in [*module.parameters(), *module.buffers()]):
        raise DistributedError(f"{what} is not initialized yet; run the model once first")
    if isinstance(module, nn.SyncBatchNorm):
        raise DistributedError(f"{what} is torch's own; pass the model before it was converted")


def _class_for(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"Synchronized{kind.__name__}", (_SynchronizedInside, kind), {"__module__": __name__})
    return _CLASSES[kind]
