"""Variants: how they are written, what they prepare, and that what was given stays as it was."""

import threading
from typing import Any

import pytest
import torch
from torch import nn

import nhwc
from nhwc.errors import ModelError, RegistryError, VariantError
from nhwc.variants import Setup, inference_step, parse, parts, prepare, training_step
from nhwc.variants import registry as registry_of_parts
from nhwc.variants.kernels import kernels_of
from nhwc.variants.registry import Kind, part

CPU = torch.device("cpu")


class Net(nn.Module):
    """A convolution, batch norm and dropout, on images given by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.dropout(self.norm(self.conv(x))) * scale


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


def state(model: nn.Module) -> dict[str, tuple[int, tuple[int, ...], int]]:
    return {name: (tensor.data_ptr(), tensor.stride(), tensor._version) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("channels_last", ["channels_last"]),
        ("compile+bf16+contiguous", ["contiguous", "bf16", "compile"]),
        (" as_is + fp16 ", ["as_is", "fp16"]),
    ],
)
def test_parts_apply_in_one_order_however_they_are_written(spec: str, names: list[str]) -> None:
    assert [each.name for each in parse(spec)] == names


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            "nhwc",
            (
                "there is no 'nhwc'; join some of as_is, channels_last, contiguous, engine, planned, kernels, "
                "bf16, fp16, compile"
            ),
        ),
        ("channels-last", "there is no 'channels-last'; did you mean channels_last?"),
        ("", "there is no ''"),
        ("channels_last+", "there is no ''"),
        ("channels_last+contiguous", "exclude each other"),
        ("channels_last+bf16+fp16", "exclude each other"),
        ("channels_last+channels_last", "exclude each other"),
        ("bf16", "names no memory format; begin it with one of as_is, channels_last, contiguous"),
    ],
)
def test_a_variant_that_makes_no_sense_is_refused(spec: str, words: str) -> None:
    with pytest.raises(RegistryError, match=words.replace("+", r"\+")):
        parse(spec)


def test_a_part_that_a_device_cannot_run_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nhwc.variants.precision.instruction_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(VariantError, match="fp16 cannot be had here: this processor has no float16 arithmetic"):
        parse("channels_last+fp16", CPU)
    monkeypatch.setattr("nhwc.variants.precision.instruction_flags", lambda: frozenset({"avx512_fp16"}))
    assert [each.name for each in parse("channels_last+fp16", CPU)] == ["channels_last", "fp16"]


def test_parts_are_registered_once_under_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_of_parts, "_PARTS", dict(registry_of_parts._PARTS))
    with pytest.raises(RegistryError, match="registered twice"):
        part("bf16", Kind.PRECISION, "again")(lambda _setup: None)
    with pytest.raises(RegistryError, match="lower-case word"):
        part("b f 16", Kind.PRECISION, "two words")
    part("folded", Kind.MODEL, "batch norm folded")(lambda _setup: None)
    assert "folded" in [each.name for each in parts()]


@pytest.mark.parametrize(("spec", "stride"), [("channels_last", 1), ("contiguous", 64), ("as_is", 64)])
def test_model_and_inputs_come_in_the_format(spec: str, stride: int, images: torch.Tensor) -> None:
    setup = prepare(spec, Net(), (images,), {"scale": 2.0}, CPU)
    assert setup.inputs[0].stride(1) == stride
    assert setup.model.conv.weight.stride(1) == (1 if stride == 1 else 9)  # type: ignore[union-attr, operator]
    assert setup.keywords == {"scale": 2.0}


def test_contiguous_undoes_a_model_in_channels_last(images: torch.Tensor) -> None:
    setup = prepare("contiguous", nhwc.convert(Net()), (nhwc.to_format(images, "channels_last"),), {}, CPU)
    assert setup.inputs[0].is_contiguous()
    assert setup.model.conv.weight.is_contiguous()  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("spec", ["as_is", "contiguous", "channels_last", "channels_last+bf16"])
def test_what_was_given_stays_as_it_was(spec: str, images: torch.Tensor) -> None:
    model = nhwc.convert(Net()).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    before, version = state(model), images._version
    setup = prepare(spec, model, (images,), {}, CPU, optimizer)
    training_step(setup, None, None)()
    inference_step(setup)()
    assert state(model) == before
    assert not model.training
    assert (images._version, images.grad, model.conv.weight.grad) == (version, None, None)
    assert setup.inputs[0].data_ptr() != images.data_ptr()


def test_a_copied_optimizer_holds_the_copied_parameters_and_follows_the_format(images: torch.Tensor) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(images).sum().backward()
    optimizer.step()
    setup = prepare("channels_last", model, (images,), {}, CPU, optimizer)
    assert setup.optimizer is not None
    held = setup.optimizer.param_groups[0]["params"]
    assert [id(each) for each in held] == [id(each) for each in setup.model.parameters()]
    assert setup.optimizer.state[held[0]]["momentum_buffer"].stride() == (27, 1, 9, 3)
    assert optimizer.state[model.conv.weight]["momentum_buffer"].stride() == (27, 9, 3, 1)


def test_a_model_that_cannot_be_copied_is_told_so(images: torch.Tensor) -> None:
    model = Net()
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ModelError, match=r"cannot be copied \(cannot pickle"):
        prepare("as_is", model, (images,), {}, CPU)


def test_inference_is_in_evaluation_mode_without_gradients(images: torch.Tensor) -> None:
    setup = prepare("contiguous", Net().train(), (images,), {}, CPU)
    step = inference_step(setup)
    assert not step().requires_grad
    assert torch.equal(step(), step())  # dropout is off, and batch norm's statistics stay


@pytest.mark.parametrize("spec", ["contiguous", "channels_last", "channels_last+bf16"])
def test_training_makes_fresh_gradients_and_leaves_the_weights(spec: str, images: torch.Tensor) -> None:
    setup = prepare(spec, Net(), (images,), {}, CPU)
    step = training_step(setup, None, None)
    before = setup.model.conv.weight.detach().clone()  # type: ignore[union-attr, operator]
    step()
    first = setup.model.norm.bias.grad  # type: ignore[union-attr]
    step()
    assert torch.equal(setup.model.conv.weight, before)  # type: ignore[arg-type]
    assert setup.model.norm.bias.grad is not first  # type: ignore[union-attr]
    assert setup.model.training


def test_training_steps_the_optimizer_that_was_asked_for_from_the_loss_that_was_given(images: torch.Tensor) -> None:
    setup = prepare("contiguous", Net(), (images,), {}, CPU)
    reference = prepare("contiguous", Net(), (images,), {}, CPU)
    reference.model.load_state_dict(setup.model.state_dict())
    step = training_step(setup, lambda output: output.square().mean(), lambda held: torch.optim.SGD(held, lr=0.5))
    torch.manual_seed(3)
    step()
    torch.manual_seed(3)
    reference.model.train()
    reference.forward().square().mean().backward()
    bias = reference.model.norm.bias  # type: ignore[union-attr]
    assert torch.equal(setup.model.norm.bias, bias - 0.5 * bias.grad)  # type: ignore[union-attr, operator, arg-type]


def test_the_loss_runs_under_autocast_and_backward_does_not(images: torch.Tensor) -> None:
    seen: list[bool] = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            seen.append(torch.is_autocast_enabled("cpu"))
            return gradient

    def loss(output: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        watched: torch.Tensor = Watch.apply(output)  # type: ignore[no-untyped-call]
        return watched.float().mean()

    training_step(prepare("channels_last+bf16", Net(), (images,), {}, CPU), loss, None)()
    assert seen == [True, False]


def test_float16_training_scales_its_gradients_and_skips_a_step_that_overflows(images: torch.Tensor) -> None:
    setup: Setup = prepare("contiguous", Net(), (images,), {}, CPU)
    setup.dtype = torch.float16
    before = setup.model.norm.bias.detach().clone()  # type: ignore[union-attr, operator]
    step = training_step(setup, lambda output: output.mean() * 3e38, lambda held: torch.optim.SGD(held, lr=0.5))
    step()
    assert torch.equal(setup.model.norm.bias, before)  # type: ignore[union-attr, arg-type]


def test_what_cannot_be_trained_is_told_so(images: torch.Tensor) -> None:
    frozen = Net().requires_grad_(False)
    with pytest.raises(ModelError, match="nothing to train"):
        training_step(prepare("contiguous", frozen, (images,), {}, CPU), None, None)
    step = training_step(prepare("contiguous", Net(), (images,), {}, CPU), lambda output: output.detach(), None)
    with pytest.raises(ModelError, match="no output of the model requires a gradient"):
        step()


def test_what_is_called_instead_of_the_model_may_have_no_truth(images: torch.Tensor) -> None:
    class Called:
        def __len__(self) -> int:
            raise TypeError("no length, as of a compiled module without one")

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    setup = prepare("as_is", Net(), (images,), {}, CPU)
    setup.call = Called()
    assert torch.equal(inference_step(setup)(), images + 1)


def test_a_loss_that_raises_is_not_held_against_the_model(images: torch.Tensor) -> None:
    loss: Any = nn.CrossEntropyLoss()
    step = training_step(prepare("contiguous", Net(), (images,), {}, CPU), loss, None)
    with pytest.raises(ModelError, match=r"the loss raised TypeError.*bring targets along in a closure"):
        step()


@pytest.mark.slow
def test_a_compiled_variant_gives_the_same_output(images: torch.Tensor) -> None:
    model = Net().eval()
    setup = prepare("channels_last+compile", model, (images,), {}, CPU)
    torch.testing.assert_close(inference_step(setup)(), model(images))
    assert setup.call is not setup.model


def test_kernels_are_switched_on_around_the_steps_of_their_variant_alone(images: torch.Tensor) -> None:
    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.seen: list[tuple[str, ...]] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.append(nhwc.kernels.active())
            return nn.functional.instance_norm(self.conv(x))

    setup = prepare("channels_last+kernels", Watching(), (images,), {}, CPU)
    step = inference_step(setup)
    assert not step().is_contiguous(memory_format=torch.channels_last)
    with setup.surroundings():
        assert step().is_contiguous(memory_format=torch.channels_last)
    assert setup.model.seen == [(), tuple(each.name for each in nhwc.kernels.kernels())]
    assert nhwc.kernels.active() == ()


def test_kernels_are_refused_where_there_are_none() -> None:
    with pytest.raises(VariantError, match="kernels cannot be had here: nhwc's kernels replace operators on the CPU"):
        parse("channels_last+kernels", torch.device("cuda"))
    assert [each.name for each in parse("kernels+channels_last+bf16", CPU)] == ["channels_last", "kernels", "bf16"]


def test_single_kernels_are_named_after_a_colon() -> None:
    (_, model_part) = parse("kernels:pad:cat+channels_last", CPU)
    assert model_part.name == "kernels:pad:cat"
    setup = prepare("channels_last+kernels:pad:cat", Net(), (), {}, CPU)
    assert setup.kernels_on() == ("cat", "pad")
    assert nhwc.kernels.active() == ()


def test_a_variants_kernels_are_told_with_those_that_are_on_already() -> None:
    assert kernels_of("channels_last", CPU) == ()
    assert kernels_of("channels_last+kernels:pad", CPU) == ("pad",)
    with nhwc.kernels.use("cat"):
        assert kernels_of("contiguous+bf16", CPU) == ("cat",)
        assert kernels_of("channels_last+kernels:pad", CPU) == ("cat", "pad")
    assert len(kernels_of("channels_last+kernels", CPU)) == len(nhwc.kernels.kernels())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("channels_last+kernels:norm", "variant 'channels_last+kernels:norm': there is no kernel 'norm'"),
        ("channels_last+kernels:", "there is no kernel ''"),
        ("channels_last+kernels:pad+kernels:cat", "kernels:pad and kernels:cat exclude each other"),
        ("channels_last+bf16:pad", "bf16 takes no values; leave out ':pad'"),
        ("channels_last+kernel:pad", "there is no 'kernel'; did you mean kernels?"),
    ],
)
def test_values_that_a_part_does_not_take_are_refused(spec: str, words: str) -> None:
    with pytest.raises(RegistryError) as caught:
        parse(spec)
    assert words in str(caught.value)
