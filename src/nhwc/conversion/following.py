"""Follow images through one run of a model, operator by operator: which Linear layers they reach, and what else takes
them on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Operators whose result has the elements of their image operand in the same order, besides the pointwise ones.
_SAME_ORDER = frozenset(
    {
        "alias", "bernoulli", "bernoulli_", "clone", "copy_", "detach", "detach_", "empty_like", "hardswish_",
        "lift_fresh", "native_dropout", "ones_like", "rand_like", "squeeze", "squeeze_", "zeros_like",
        "_prelu_kernel", "_to_copy",
    }
)  # fmt: skip
_RESHAPES = frozenset({"view", "_unsafe_view", "_reshape_alias"})
#: Views of a weight that come before it is multiplied.
_WEIGHT_VIEWS = frozenset({"alias", "detach", "permute", "t", "transpose"}) | _RESHAPES
#: What a change of format may add or drop without changing any value.
_MOVES = frozenset(
    {
        "as_strided", "as_strided_", "clone", "copy_", "empty", "empty_like", "empty_strided", "expand", "new_empty",
        "new_empty_strided", "to_format", "_to_copy",
    }
)  # fmt: skip
#: Multiplication → the places of image and weight among its operands.
_MULTIPLIES = {"addmm": (1, 2), "mm": (0, 1), "linear": (0, 1)}


class Image(NamedTuple):
    """site: where the image was seen last, the path of a module. shape: (N, C, H, W)."""

    site: str
    shape: tuple[int, ...]


class Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every tensor that ``see`` was given, through operators that keep the order of its elements.

    reached: Linear → the images that its weight is multiplied with. others: Linear → what else uses its weight.
    strays: image → the first operator that takes it otherwise, which makes the image unfit to be turned.
    ends: the same for images that were flattened already.
    steps: every operator that computes, with the numbers that it was given.
    turned: the images are (N, H * W * C, 1, 1), so that no result may have their old shape.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], *, turned: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reached: dict[str, set[Image]] = {}
        self.others: dict[str, str] = {}
        self.strays: dict[Image, str] = {}
        self.ends: dict[Image, str] = {}
        self.steps: list[str] = []
        self._turned = turned
        self._weights = {weight.data_ptr(): path for path, weight in weights.items()}
        self._images: dict[tuple[int, tuple[int, ...]], Image] = {}
        self._storages: list[tuple[Image, StorageWeakRef]] = []

    def see(self, site: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
        """From here on ``tensor`` is the image (N, C, H, W) = ``shape`` of ``site``."""
        self._mark(tensor, Image(site, shape))

    def image_of(self, tensor: torch.Tensor) -> Image | None:
        """What ``tensor`` holds, as far as that was followed."""
        return self._images.get(_key(tensor))

    def ends_with(self, value: object) -> None:
        """Take note of the numbers and words among what the model returns, as its last step."""
        self.steps.append(f"returns {[leaf for leaf in tree_leaves(value) if isinstance(leaf, _PLAIN)]}")

    def leaves(self, value: object) -> None:
        """Take note of the images in what a module hands to its caller, whom nothing is known of."""
        for tensor in _tensors(value):
            image = self.image_of(tensor)
            if image is not None:
                self.strays.setdefault(image, "is handed out of the model")

    def holds_images(self) -> bool:
        """Whether the memory of an image is still alive."""
        return not all(_expired(storage) for _, storage in self._storages)

    def kept(self) -> None:
        """Take note of the images that are still alive, to be called when the run and all it returned are gone."""
        for image, storage in self._storages:
            if not _expired(storage):
                self.strays.setdefault(image, "is kept by a hook or an attribute after the call")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        operands = _tensors((args, keywords))
        images = [self.image_of(tensor) for tensor in operands]
        multiplied = self._note_weights(func, args, operands)
        self._note_step(func, args, keywords)
        result = func(*args, **keywords)
        results = _tensors(result)
        for tensor in results:
            if all(tensor is not operand for operand in operands):
                self._images.pop(_key(tensor), None)
        seen = {image for image in images if image is not None}
        if not seen or multiplied:
            return result
        image = seen.pop()
        if seen or not self._passes(func, image, operands, images, results):
            self._note_strays(func, operands, images)
            return result
        for tensor in results:
            self._mark(tensor, image)
        return result

    def _note_step(self, func: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        name = _name(func)
        if name in _RESHAPES or name in _WEIGHT_VIEWS or name in _MOVES:
            return
        numbers = [leaf for leaf in tree_leaves((args, keywords)) if isinstance(leaf, _PLAIN)]
        self.steps.append(f"{name} {numbers}")

    def _note_strays(self, func: Any, operands: Sequence[torch.Tensor], images: Sequence[Image | None]) -> None:
        reason = f"also goes into {_name(func)}, which minds its order"
        for operand, image in zip(operands, images, strict=True):
            if image is not None:
                self.strays.setdefault(image, reason)
                if operand.dim() == 2:
                    self.ends.setdefault(image, reason)

    def _passes(
        self,
        func: Any,
        image: Image,
        operands: Sequence[torch.Tensor],
        images: Sequence[Image | None],
        results: Sequence[torch.Tensor],
    ) -> bool:
        name = _name(func)
        if not (torch.Tag.pointwise in func.tags or name in _SAME_ORDER or name in _RESHAPES):
            return False
        if any(seen is None and operand.numel() != 1 for operand, seen in zip(operands, images, strict=True)):
            return False
        return all(self._keeps_order(tuple(tensor.shape), image) for tensor in results)

    def _keeps_order(self, shape: tuple[int, ...], image: Image) -> bool:
        number, features = image.shape[0], prod(image.shape[1:])
        if shape == image.shape and not self._turned:
            return True
        return shape[:2] == (number, features) and prod(shape[2:]) == 1

    def _note_weights(self, func: Any, args: Sequence[Any], operands: Sequence[torch.Tensor]) -> bool:
        """Whether an image is multiplied with the weight of a Linear; every other use of a weight is noted too."""
        used = [self._weights[tensor.data_ptr()] for tensor in operands if tensor.data_ptr() in self._weights]
        name = _name(func)
        if not used or name in _WEIGHT_VIEWS:
            return False
        places = _MULTIPLIES.get(name)
        image = None
        if places is not None and self._weights.get(args[places[1]].data_ptr()) == used[0] and len(used) == 1:
            image = self.image_of(args[places[0]])
        if image is None:
            for path in used:
                self.others.setdefault(path, "is called with other tensors too" if places else f"also uses {name}")
            return False
        self.reached.setdefault(used[0], set()).add(image)
        return True

    def _mark(self, tensor: torch.Tensor, image: Image) -> None:
        self._images[_key(tensor)] = image
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._storages.append((image, storage))


def _expired(storage: StorageWeakRef) -> bool:
    expired: bool = storage.expired()  # type: ignore[no-untyped-call]
    return expired


_PLAIN = (bool, int, float, complex, str)


def _name(func: Any) -> str:
    name: str = func.overloadpacket.__name__
    return name


def _key(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape)


def _tensors(value: object) -> list[torch.Tensor]:
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            if leaf.layout is torch.strided and not leaf.is_nested and leaf.numel():
                found.append(leaf)
        elif hasattr(leaf, "__dataclass_fields__") and not isinstance(leaf, type):
            found += _tensors([getattr(leaf, name, None) for name in leaf.__dataclass_fields__])
    return found
