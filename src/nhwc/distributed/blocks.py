"""Which parts of a model are gathered and freed together while it is sharded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torch import nn

from nhwc.errors import DistributedError

#: Parts with fewer parameters are left to the part around them: a collective of its own would cost more than it frees.
SMALLEST = 100_000


def chosen_blocks(model: nn.Module, blocks: Iterable[str | nn.Module | type[nn.Module]]) -> list[nn.Module]:
    """The modules that names, modules and types stand for, the inner ones first."""
    paths = {path: module for path, module in model.named_modules() if module is not model}
    chosen: set[int] = set()
    for block in blocks:
        found = [
            module
            for path, module in paths.items()
            if block is module or block == path or (isinstance(block, type) and isinstance(module, block))
        ]
        if not found:
            what = block if isinstance(block, str) else getattr(block, "__name__", type(block).__name__)
            raise DistributedError(f"blocks: {what} is no part of this {type(model).__name__}; see named_modules()")
        chosen |= {id(module) for module in found}
    return [module for module in reversed(list(model.modules())) if id(module) in chosen]


def usual_blocks(model: nn.Module) -> list[nn.Module]:
    """The children of the model, where these are containers the children of them, as far as they are large enough.

    Parts that share a parameter with another part stay with the model itself, which holds it all the time.
    """
    shared = _shared(model)
    return [
        block
        for block in _candidates(model)
        if sum(parameter.numel() for parameter in block.parameters()) >= SMALLEST
        and not any(id(parameter) in shared for parameter in block.parameters())
    ]


def _candidates(model: nn.Module) -> Iterator[nn.Module]:
    seen = set()
    for child in model.children():
        if type(child).forward in (nn.Sequential.forward, nn.Module.forward):
            inside: Iterable[nn.Module] = _candidates(child)
        else:
            inside = (child,)
        for module in inside:
            if id(module) not in seen:
                seen.add(id(module))
                yield module


def _shared(model: nn.Module) -> set[int]:
    """The ``id`` of each parameter that is registered in several modules."""
    uses = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())
    return {parameter for parameter, count in uses.items() if count > 1}
