"""From words to a model with its inputs on a device: what every command that runs a TARGET does before it runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nhwc.cli import inputs, targets
from nhwc.cli.exits import one_line, say
from nhwc.cli.inputs import InputShape
from nhwc.cli.pictures import find_pictures
from nhwc.cli.recipes import Kind
from nhwc.cli.static import make_fake, weightless
from nhwc.cli.targets import Target
from nhwc.errors import TargetError

if TYPE_CHECKING:
    import torch

_AMP = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Request:
    """What the command line asks to run, checked as far as that needs no torch.

    shapes, pictures: what --input and --images gave. batch: samples per step, None where nothing was said.
    train: detection models then get something to find. static: build and place everything on fake tensors.
    """

    target: str
    shapes: tuple[InputShape, ...]
    images: Path | None
    pictures: tuple[Path, ...]
    batch: int | None
    train: bool
    device: str
    threads: int | None
    seed: int
    static: bool = False


def request(
    target: str,
    *,
    input_: Sequence[str],
    images: Path | None,
    batch: int | None,
    train: bool,
    device: str,
    threads: int | None,
    seed: int,
    static: bool = False,
) -> Request:
    """Read the words of a command line. Raises TargetError, before torch is imported, for those that make no sense."""
    shapes = tuple(inputs.parse_input(text) for text in input_)
    if shapes and batch is not None:
        raise TargetError("--batch and --input both give the batch; leave one out")
    targets.check(target)
    pictures = () if images is None else tuple(find_pictures(images))
    return Request(target, shapes, images, pictures, batch, train, device, threads, seed, static)


def amp_dtype(word: str | None) -> str | None:
    """The name of the dtype that --amp asks for. Raises TargetError for another word."""
    if word is not None and word not in _AMP:
        raise TargetError(f"--amp {word!r} is unknown; use bf16 or fp16")
    return None if word is None else _AMP[word]


def prepare(asked: Request) -> Target:
    """Build the target and bring it with its inputs to the device; torch's threads and seed are set on the way.

    Raises TargetError, in one sentence, wherever that fails.
    """
    place = prepare_device(asked.device, asked.threads, asked.seed, static=asked.static)
    chosen = _loaded(asked)
    chosen = _with_pictures(chosen, asked.images, asked) if asked.images is not None else _with_tensors(chosen, asked)
    inputs.refuse_empty(asked.target, [*(chosen.inputs or ()), *chosen.keywords.values()])
    return _placed(_with_training_targets(chosen, asked.train), place, asked.static)


def prepare_device(device: str, threads: int | None, seed: int, *, static: bool = False) -> torch.device:
    """The device of that name, tried out; sets torch's threads and seed. Raises TargetError where it cannot be used."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(seed)
    try:
        found = torch.device(device)
        if not static:  # fake tensors pretend to be on any device
            torch.empty(1, device=found)
    except NotImplementedError as error:
        raise TargetError(f"--device {device} cannot be used: this torch has no {device} backend") from error
    except Exception as error:  # each backend refuses in its own way
        raise TargetError(f"--device {device} cannot be used: {one_line(error)}") from error
    if found.type == "meta":
        raise TargetError("--device meta computes nothing; use --static with the device that the model is meant for")
    return found


def _loaded(asked: Request) -> Target:
    if not asked.static:
        return targets.load(asked.target)
    with weightless():
        return targets.load(asked.target)


def _with_tensors(target: Target, asked: Request) -> Target:
    if asked.shapes:
        return replace(target, inputs=tuple(inputs.random_input(shape) for shape in asked.shapes), keywords={})
    if target.inputs is None and target.recipe is not None:
        return replace(target, inputs=inputs.default_inputs(target.recipe, asked.batch))
    if target.inputs is None:
        raise TargetError(f"{target.name} came without inputs; give --input 8x3x224x224 or return (module, inputs)")
    if asked.batch is not None:
        raise TargetError(f"{target.name} brings its own inputs; leave out --batch, or give --input")
    return target


def _with_pictures(target: Target, images: Path, asked: Request) -> Target:
    recipe, given = inputs.recipe_for(target.recipe, asked.shapes)
    made, count = inputs.from_pictures(asked.pictures, recipe, given or asked.batch)
    wanted = given or asked.batch or recipe.kind.batch
    said = f"{count} picture{'s' if count != 1 else ''}"
    if target.inputs is not None:
        say(f"{target.name} brings its own inputs: the pictures take their place")
    if count < wanted:
        say(f"{said} for a batch of {wanted}: they come round again")
    return replace(target, name=f"{target.name} on {said} of {images}", inputs=made, keywords={})


def _with_training_targets(target: Target, train: bool) -> Target:
    """Detection models take a list of images and, to train, what there is to find in them."""
    if target.recipe is None or target.recipe.kind is not Kind.DETECTION or not target.inputs:
        return target
    images = list(target.inputs[0])  # type: ignore[call-overload]
    return replace(target, inputs=(images, inputs.boxes_for(images, target.model)) if train else (images,))


def _placed(target: Target, place: torch.device, static: bool) -> Target:
    if static:
        from nhwc import api

        with api.fake_mode():
            make_fake(target.model, place)
            return _with_arguments_on(target, place, static)
    try:
        target.model.to(place)
    except Exception as error:  # out of memory, or a module that refuses
        raise TargetError(f"{target.name} cannot be moved to {place}: {one_line(error)}") from error
    return _with_arguments_on(target, place, static)


def _with_arguments_on(target: Target, place: torch.device, static: bool) -> Target:
    keywords = inputs.placed(dict(target.keywords), place, static)
    return replace(target, inputs=inputs.placed(target.inputs, place, static), keywords=keywords)
