"""A plan on a model: formats at every boundary, the same numbers and gradients, and nothing of it left afterwards."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from optimization.made_up_plans import Branching, mixed, plan
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import nhwc
from nhwc.optimization import Arrangement, applying, arrange, boundaries
from nhwc.optimization.boundaries import Enter, take_moves_off
from nhwc.strides import LayoutKind

IMAGE = torch.randn(2, 3, 8, 8)


def kind(tensor: torch.Tensor) -> LayoutKind:
    return nhwc.layout_of(tensor).kind


def watched(model: nn.Module) -> dict[str, LayoutKind]:
    """The layouts that modules are called with from now on; their hooks come after those of a plan."""
    seen: dict[str, LayoutKind] = {}

    def hook(path: str) -> Callable[..., None]:
        def note(_module: nn.Module, args: tuple[Any, ...]) -> None:
            seen[path] = kind(args[0])

        return note

    for path, module in model.named_children():
        module.register_forward_pre_hook(hook(path))
    return seen


def planned(model: Branching | None = None) -> Branching:
    model = model or Branching()
    arrange(model, Arrangement("", (mixed(model),)))
    return model


def test_every_module_gets_its_format() -> None:
    model = Branching()
    expected = model(IMAGE)
    planned(model)
    seen = watched(model)
    assert torch.allclose(model(IMAGE), expected, atol=1e-5)
    assert {path: str(found) for path, found in seen.items()} == {
        "stem": "contiguous",
        "left": "channels_last",
        "right": "channels_last",
        "head": "contiguous",
    }
    assert {path: str(kind(getattr(model, path).weight)) for path in seen} == {
        path: str(found) for path, found in seen.items()
    }


def test_one_conversion_serves_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = planned()
    converted: list[int] = []
    bring = boundaries.bring

    def counting(value: Any, memory_format: str) -> Any:
        result = bring(value, memory_format)
        converted.extend([1] * (isinstance(value, torch.Tensor) and result is not value))
        return result

    monkeypatch.setattr(boundaries, "bring", counting)
    with torch.no_grad():
        model(IMAGE)
    assert sum(converted) == 1  # for both branches; that of the head goes through a tuple
    (route,) = {id(hook.route): hook.route for hook in model._forward_pre_hooks.values()}.values()
    assert route.kept == []


def test_a_conversion_is_made_again_where_its_source_was_written_to() -> None:
    class Writes(Branching):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            x = self.stem(x)
            left = self.left(x)
            x.mul_(2.0)
            return self.head(left + self.right(x))

    model = Writes()
    with torch.no_grad():
        expected = model(IMAGE)
        planned(model)
        assert torch.allclose(model(IMAGE), expected, atol=1e-5)


def test_gradients_go_through_and_lie_as_their_weights_do() -> None:
    plain = Branching()
    model = planned(copy.deepcopy(plain))
    for each in (plain, model):
        each(IMAGE).square().sum().backward()
    for (name, one), other in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=1e-4), name
        assert other.grad.stride() == other.stride(), name


def test_under_autocast() -> None:
    model = Branching()
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(IMAGE)
        planned(model)
        seen = watched(model)
        found = model(IMAGE)
    assert found.dtype is torch.bfloat16
    assert torch.allclose(found, expected, atol=0.05)
    assert str(seen["left"]) == "channels_last"


def test_compiled() -> None:
    class Plain(Branching):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            x = self.stem(x)
            return self.head(self.left(x) + self.right(x))

    model = Plain()
    expected = model(IMAGE)
    planned(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = compiled(IMAGE)
    found.sum().backward()
    assert torch.allclose(found, expected, atol=1e-5)
    assert model.left.weight.grad is not None
    torch._dynamo.reset()


def test_under_ddp(tmp_path: Any) -> None:
    model = Branching()
    expected = model(IMAGE)
    planned(model)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(model)
        found = wrapped(IMAGE)
        found.sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert torch.allclose(found, expected, atol=1e-5)
    assert all(each.grad is not None and each.grad.stride() == each.stride() for each in model.parameters())


def test_a_plan_for_each_shape_and_the_first_for_all_others() -> None:
    model = Branching()
    small = plan(model, {"left": "channels_last"}, [("before", "left", "contiguous", 1)], shape=(2, 3, 4, 4))
    arrange(model, Arrangement("", (mixed(model), small)))
    seen = watched(model)
    found = {}
    for size in (8, 4, 6):
        model(torch.randn(2, 3, size, size))
        found[size] = str(seen["left"]), str(seen["right"])
    # what the small plan leaves alone comes as the stem hands it out
    assert found[8] == found[6] == ("channels_last", "channels_last")
    assert found[4] == ("contiguous", "contiguous")


def test_after_moves_and_moves_of_the_inputs() -> None:
    model = Branching()
    arrange(
        model,
        Arrangement(
            "",
            (
                plan(
                    model,
                    {"stem": "channels_last"},
                    [("before", "", "channels_last", 0), ("after", "stem", "contiguous", 1)],
                ),
            ),
        ),
    )
    seen = watched(model)
    model(IMAGE)
    assert {path: str(seen[path]) for path in ("stem", "left")} == {"stem": "channels_last", "left": "contiguous"}


def test_copies_and_files_have_it_too_and_let_go_of_it() -> None:
    model = planned()
    expected = model(IMAGE)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for other in (copy.deepcopy(model), torch.load(saved, weights_only=False)):
        seen = watched(other)
        assert torch.equal(other(IMAGE), expected)
        assert str(seen["left"]) == "channels_last"
        nhwc.restore(other)
        assert str(kind(other.left.weight)) == "contiguous"
        assert not other._forward_pre_hooks
        assert not other._forward_hooks
    assert any(isinstance(hook, Enter) for hook in model._forward_pre_hooks.values())


def test_loading_weights_keeps_the_formats() -> None:
    model, other = planned(), Branching()
    model.load_state_dict(other.state_dict(), assign=True)
    assert [str(kind(each.weight)) for each in (model.stem, model.left)] == ["contiguous", "channels_last"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_interrupted_it_leaves_the_model_as_it_was(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(applying, "convert_each", interrupted)
    model = Branching()
    with pytest.raises(error):
        planned(model)
    assert not take_moves_off(model)


def test_a_plan_of_another_model_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3))
    with pytest.raises(nhwc.ConversionError, match="'left', which this model does not have"):
        arrange(model, Arrangement("", (mixed(Branching()),)))
    assert not take_moves_off(model)


def test_an_exception_in_a_call_lets_go_of_what_was_kept() -> None:
    model = planned()
    (route,) = {id(hook.route): hook.route for hook in model._forward_pre_hooks.values()}.values()
    kept = []

    def raises(*_arguments: object) -> None:
        kept.append(len(route.kept))
        raise ValueError("stop")

    model.right.register_forward_pre_hook(raises, prepend=True)
    with pytest.raises(ValueError, match="stop") as caught:
        model(IMAGE)
    del caught
    gc.collect()
    assert (kept, route.kept) == ([1], [])


def test_a_conversion_that_another_thread_let_go_of_is_still_taken() -> None:
    class Shared(list[boundaries._Kept]):
        def __iter__(self) -> Iterator[boundaries._Kept]:
            for each in list.copy(self):
                self.clear()  # the other thread begins a call
                yield each

    route, other = boundaries.Route({}), IMAGE.contiguous(memory_format=torch.channels_last)
    route.kept = Shared()
    route.keep(IMAGE, "auto", other, 1)
    assert route.take(IMAGE, "auto") is other
    assert len(route.kept) == 0
