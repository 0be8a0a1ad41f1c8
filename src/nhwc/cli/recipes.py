"""What a model takes: the kind of its input, the shape of one sample, and how a picture becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from nhwc.cli.pictures import pan
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_RESIZE_OVER_CROP = 256 / 224


class Kind(Enum):
    """How a model wants its samples handed over; the value is the batch that is taken when none is asked for."""

    IMAGE = ("image", 8)  # one tensor N, C, H, W
    SEGMENTATION = ("segmentation", 2)  # the same, of square pictures
    CLIP = ("clip", 2)  # one tensor N, C, D, H, W
    FLOW = ("flow", 2)  # two tensors N, C, H, W: earlier and later
    DETECTION = ("detection", 2)  # a list of tensors C, H, W

    @property
    def batch(self) -> int:
        return self.value[1]


@dataclass(frozen=True)
class Recipe:
    """How to make a model's inputs.

    sample: the shape of one sample, (C, H, W) or (C, D, H, W).
    transform: the model's own preparation, from pictures to a tensor of one sample; torchvision's call signatures:
        one picture for images, segmentation and detection, two for flow, an 8-bit tensor D, C, H, W for clips.
    """

    kind: Kind
    sample: tuple[int, ...]
    transform: Callable[..., Any]

    def collate(self, samples: Sequence[tuple[Tensor, ...]]) -> tuple[object, ...]:
        """A model's positional arguments from its samples, each a tuple of one tensor (two for flow)."""
        import torch

        if self.kind is Kind.DETECTION:
            return ([tensor for (tensor,) in samples],)
        return tuple(torch.stack(column) for column in zip(*samples, strict=True))

    def random(self) -> tuple[Tensor, ...]:
        """One sample of random numbers."""
        import torch

        count = 2 if self.kind is Kind.FLOW else 1
        # Detection models take pictures in 0 to 1, all others take them normalised.
        draw = torch.rand if self.kind is Kind.DETECTION else torch.randn
        return tuple(draw(self.sample) for _ in range(count))

    def from_picture(self, picture: Image) -> tuple[Tensor, ...]:
        """One sample from one RGB picture; clips and flow see it through a moving window."""
        from PIL import ImageOps

        if self.kind is Kind.CLIP:
            return (self.transform(_frames(pan(picture, self.sample[1]))),)
        if self.kind is Kind.FLOW:
            size = (self.sample[2], self.sample[1])
            return tuple(self.transform(*(ImageOps.fit(frame, size) for frame in pan(picture, 2))))
        if self.kind is Kind.SEGMENTATION:
            side = min(picture.size)
            picture = ImageOps.fit(picture, (side, side))
        return (self.transform(picture),)


def usual(sample: tuple[int, ...]) -> Recipe:
    """ImageNet's resize, centre crop and normalisation at the size of ``sample``: (3, H, W), or (3, D, H, W) for clips.

    Raises TargetError where a picture cannot become such a sample.
    """
    if len(sample) not in (3, 4) or sample[0] != 3 or 0 in sample:
        text = "x".join(map(str, sample))
        raise TargetError(f"pictures cannot become samples of {text}; give --input as Nx3xHxW, or Nx3xDxHxW for clips")
    v2 = vision().transforms.v2
    import torch

    size = sample[-2:]
    steps = [
        v2.ToImage(),
        v2.Resize([round(side * _RESIZE_OVER_CROP) for side in size], antialias=True),
        v2.CenterCrop(size),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(**_IMAGENET),
    ]
    if len(sample) == 3:
        return Recipe(Kind.IMAGE, sample, v2.Compose([*steps, _plain]))
    return Recipe(Kind.CLIP, sample, v2.Compose([*steps, _plain, lambda clip: clip.transpose(0, 1)]))


def vision() -> Any:
    """torchvision, or a sentence that says how to get it."""
    try:
        import torchvision
        import torchvision.transforms.v2
    except ImportError as error:
        raise TargetError(f"this needs torchvision ({error}); install it with: pip install 'nhwc[vision]'") from error
    return torchvision


def _plain(image: Tensor) -> Tensor:
    import torch

    return image.as_subclass(torch.Tensor)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]


def _frames(pictures: Sequence[Image]) -> Tensor:
    import numpy as np
    import torch

    return torch.stack([torch.from_numpy(np.array(picture)).permute(2, 0, 1) for picture in pictures])
