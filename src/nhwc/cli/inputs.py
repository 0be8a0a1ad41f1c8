"""A model's inputs: from shapes, from pictures, or from what the model is known to take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nhwc.cli import recipes
from nhwc.cli.pictures import read_picture
from nhwc.cli.recipes import Recipe
from nhwc.cli.static import fake_like
from nhwc.errors import TargetError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_SHAPE = re.compile(r"\d+(x\d+)*")
_SHORT = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
    "int": "int32",
    "long": "int64",
}


@dataclass(frozen=True)
class InputShape:
    """One --input: the sizes of a tensor, and the name of its dtype as torch spells it."""

    sizes: tuple[int, ...]
    dtype: str = "float32"


def parse_input(text: str, option: str = "--input") -> InputShape:
    """Read one --input, sizes joined by x and an optional dtype. Raises TargetError where it is neither.

    option: what the sentence of the error speaks of.

    >>> parse_input("2x5:int64")
    InputShape(sizes=(2, 5), dtype='int64')
    """
    sizes, _, dtype = text.strip().lower().partition(":")
    if not _SHAPE.fullmatch(sizes):
        raise TargetError(f"{option} {text!r} is no shape; write sizes joined by x, with a dtype if need be: 2x5:int64")
    shape = InputShape(tuple(map(int, sizes.split("x"))), _SHORT.get(dtype, dtype or "float32"))
    if 0 in shape.sizes:
        raise TargetError(f"{option} {text!r} has no elements, and so no layout; every size must be 1 or more")
    return shape


def batch_sizes(words: str | None) -> tuple[int, ...]:
    """Read one --batches. Raises TargetError for what are no batch sizes.

    >>> batch_sizes("1,8")
    (1, 8)
    """
    try:
        sizes = tuple(int(word) for word in words.split(",")) if words is not None else ()
    except ValueError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise TargetError(f"--batches {words!r} are no batch sizes; write 1,8")
    return sizes


def refuse_empty(name: str, values: Iterable[object]) -> None:
    """Raise TargetError where an image or a clip among a model's arguments is an empty batch: it has no layout."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor) and value.dim() >= 4 and value.shape[0] == 0:
            raise TargetError(
                f"{name} brings an empty batch of shape {tuple(value.shape)}, which has no layout; give it a sample"
            )


def random_input(shape: InputShape) -> Tensor:
    """Normal random numbers; whole numbers are 0 or 1, which index any table; bytes are 0 to 255, as in a picture.

    Raises TargetError for a dtype that this torch lacks.
    """
    import torch

    dtype = getattr(torch, shape.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise TargetError(
            f"--input: no dtype {shape.dtype!r}; torch has float32, bfloat16, int64, uint8, bool and more"
        )
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape.sizes, dtype=dtype if dtype.itemsize > 1 else torch.float32).to(dtype)
    return torch.randint(0, 256 if dtype is torch.uint8 else 2, shape.sizes).to(dtype)


def from_pictures(pictures: Sequence[Path], recipe: Recipe, batch: int | None) -> tuple[tuple[object, ...], int]:
    """The model's arguments made of ``pictures``, and how many different ones went in.

    Where the batch holds more than there are, they come round again. Raises TargetError for what cannot be read.
    """
    wanted = recipe.kind.batch if batch is None else batch
    paths = pictures[:wanted]
    samples = [recipe.from_picture(read_picture(path)) for path in paths]
    return recipe.collate([samples[i % len(samples)] for i in range(wanted)]), len(paths)


def recipe_for(recipe: Recipe | None, shapes: Sequence[InputShape]) -> tuple[Recipe, int | None]:
    """The recipe for pictures, and the batch where --input gives one: its shape overrules what the model asks for."""
    if len(shapes) > 1:
        raise TargetError("--images fills one input; give --input once, for the size of the pictures")
    if shapes:
        return recipes.usual(shapes[0].sizes[1:]), shapes[0].sizes[0]
    return (recipe or recipes.usual((3, 224, 224))), None


def boxes_for(images: Sequence[Tensor], model: nn.Module) -> list[dict[str, Tensor]]:
    """What a detection model trains on: one box of class 1 in the middle of each image, with its mask and keypoints
    where the model learns those.
    """
    heads: Any = getattr(model, "roi_heads", None)
    masks = heads is not None and heads.has_mask()
    keypoints = heads is not None and heads.has_keypoint()
    return [_target(image, masks, keypoints) for image in images]


def _target(image: Tensor, masks: bool, keypoints: bool) -> dict[str, Tensor]:
    import torch

    height, width = image.shape[-2:]
    left, top, right, bottom = width // 4, height // 4, width * 3 // 4, height * 3 // 4
    target = {"boxes": torch.tensor([[left, top, right, bottom]], dtype=torch.float32), "labels": torch.tensor([1])}
    if masks:
        target["masks"] = torch.zeros(1, height, width, dtype=torch.uint8)
        target["masks"][:, top:bottom, left:right] = 1
    if keypoints:
        target["keypoints"] = torch.tensor([[[width / 2, height / 2, 1.0]] * 17])
    return target


def placed(value: Any, device: torch.device, fake: bool) -> Any:
    """``value`` with every tensor in its tuples, lists and dicts on ``device``.

    fake: tensors become uninitialised ones of the same layout, so that the mode that is active makes them fake.
    """
    import torch

    if isinstance(value, torch.Tensor):
        if fake:
            return fake_like(value, device)
        return value.to(device)
    if isinstance(value, dict):
        return {key: placed(item, device, fake) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(placed(item, device, fake) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(placed(item, device, fake) for item in value)
    return value


def default_inputs(recipe: Recipe, batch: int | None) -> tuple[object, ...]:
    """Random arguments of the kind and size that the model is known to take."""
    return recipe.collate([recipe.random() for _ in range(recipe.kind.batch if batch is None else batch)])
