"""``nhwc.engine``: a model made ready for inference on the CPU, in channels last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nhwc.api.progress import Progress, quiet
from nhwc.inference.buckets import resized
from nhwc.inference.choosing import Chooser
from nhwc.inference.measurements import Measurements, folder
from nhwc.inference.module import Engine
from nhwc.inference.numerics import settle
from nhwc.inference.specialization import Specialization
from nhwc.machine import processor_name


def engine(
    model: torch.nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    exact: bool = False,
    budget_s: float = 15.0,
    threads: int | None = None,
    shapes: Sequence[Sequence[Any]] = (),
    batches: Sequence[int] = (),
    progress: Progress | None = None,
) -> Engine:
    """The model as a module for inference on the CPU: called like the model, the same numbers, sooner.

    inputs, kwargs: example arguments; their shapes are what it is built for. exact: no algorithm that changes the
    rounding of single products (Winograd's). budget_s: for timing algorithms. threads: how many it is tuned for, by
    default as many as torch has. shapes: further example arguments, a sequence for each. progress: told of
    (stage, done, total). batches: batch sizes to build for besides the example's; a call takes the next larger one.

    Raises EngineError for a model in training mode or one that torch.export cannot take.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    >>> picture = torch.randn(1, 3, 16, 16)
    >>> fast = engine(model, picture)
    >>> torch.allclose(fast(picture), model(picture), atol=1e-5)
    True
    """
    told = progress or quiet
    measured = Measurements(processor_name(), folder())
    chooser = Chooser(measured, budget_s)
    count = threads or torch.get_num_threads()

    def built(args: Sequence[Any], keywords: Mapping[str, Any]) -> Specialization:
        made = Specialization(model, args, keywords, chooser, exact, told)
        made.ready(count)
        return made

    examples = [tuple(inputs), *map(tuple, shapes)]
    specializations = [built(each, kwargs or {}) for each in examples]
    accuracy = settle(specializations[0], model, inputs, kwargs or {}, count, told)
    buckets = [built(*resized((inputs, kwargs or {}), batch)) for batch in sorted(set(batches))]
    measured.save()
    return Engine(model, specializations, buckets, accuracy)
