"""The pieces of a step: losses, averages, precision, shares of time, stopping."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training.runs import certain, settings, tiny, train

import nhwc
from nhwc.errors import DataError, ModelError, TrainingError
from nhwc.training.averaging import Average
from nhwc.training.metrics import Sums, loss_of, means
from nhwc.training.optimizers import make_optimizer
from nhwc.training.randomness import random_state, set_random_state
from nhwc.training.shares import PARTS, Stopwatch
from nhwc.training.steps import require_gradients
from nhwc.training.stopping import listening


def test_loss_and_hits_are_means_over_images() -> None:
    logits = torch.eye(7)[torch.tensor([0, 1, 2, 3, 4, 5])] * 5
    targets = torch.tensor([0, 1, 2, 0, 6, 6])  # three right; 0 is among the best five of the fourth
    sums = Sums(torch.device("cpu"))
    for part in (slice(0, 4), slice(4, 6)):
        loss, _ = loss_of(logits[part], targets[part], 0.0, 7)
        sums.add(logits[part], targets[part], loss)
    found = means(sums.values)
    wanted = nn.functional.cross_entropy(logits, targets)
    best = logits.topk(5, dim=1).indices
    assert found.loss == pytest.approx(float(wanted), rel=1e-6)
    assert (found.top1, found.images) == (50.0, 6)
    assert found.top5 == pytest.approx(100 * float((best == targets[:, None]).any(1).double().mean()))


def test_fewer_than_five_classes() -> None:
    sums = Sums(torch.device("cpu"))
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    sums.add(logits, torch.tensor([0, 1]), torch.tensor(1.0))
    assert (means(sums.values).top1, means(sums.values).top5) == (50.0, 100.0)


def test_auxiliary_heads_count_by_three_tenths() -> None:
    first, second, targets = torch.randn(4, 3), torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    alone, _ = loss_of(first, targets, 0.1, 3)
    other, _ = loss_of(second, targets, 0.1, 3)
    both, logits = loss_of((first, second, None), targets, 0.1, 3)
    torch.testing.assert_close(both, alone + 0.3 * other)
    assert logits is first
    assert loss_of({"logits": first}, targets, 0.0, 3)[1] is first
    torch.testing.assert_close(alone, nn.functional.cross_entropy(first, targets, label_smoothing=0.1))


@pytest.mark.parametrize("output", [None, torch.zeros(2, 3, 4), {"scores": torch.zeros(2, 3)}, ()], ids=str)
def test_what_are_no_logits(output: Any) -> None:
    with pytest.raises(TrainingError, match="the model must return logits"):
        loss_of(output, torch.tensor([0, 1]), 0.0, 3)


def test_a_model_of_too_few_classes() -> None:
    with pytest.raises(TrainingError, match="the model tells 2 classes apart, the data has 3"):
        train(settings(), lambda _: certain(2))


def test_a_model_that_raises() -> None:
    with pytest.raises(ModelError, match=r"the model raised RuntimeError for images \(8, 3, 10, 10\): .*channels"):
        train(settings(), lambda classes: certain(classes, channels=4))


def test_what_is_no_model() -> None:
    with pytest.raises(TrainingError, match=r"must be a torch.nn.Module, or a function that makes one; got int"):
        train(settings(), lambda _: 7)  # type: ignore[arg-type,return-value]


def test_a_model_without_parameters() -> None:
    with pytest.raises(TrainingError, match="Flatten has no parameter to train"):
        make_optimizer(nn.Flatten(), settings())


def test_a_loss_that_is_no_number_ends_the_run_and_saves_nothing(tmp_path: Any) -> None:
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at epoch 0, step [2-4]; try a lower lr, .*fp16$"):
        train(settings(lr=1e30, folder=tmp_path), certain)
    assert not (tmp_path / "last.pt").exists()


def test_a_checkpoint_is_never_made_of_a_loss_that_is_no_number(tmp_path: Any) -> None:
    with pytest.raises(TrainingError, match="the loss is"):
        train(settings(lr=1e30, folder=tmp_path, print_every=100, save_every=3), certain)
    assert not (tmp_path / "last.pt").exists()


def test_the_average_follows_the_weights() -> None:
    model, average = nn.BatchNorm2d(2), Average(nn.BatchNorm2d(2), 0.5)
    with torch.no_grad():
        model.weight.fill_(3.0)
        model.running_mean.fill_(2.0)
        model.num_batches_tracked.fill_(7)
    average.update(model, 100)
    assert average.model.weight.tolist() == [2.0, 2.0]
    assert average.model.running_mean.tolist() == [1.0, 1.0]
    assert int(average.model.num_batches_tracked) == 7
    average.update(model, 0)  # early steps forget the beginning sooner: a tenth stays
    assert average.model.weight.tolist() == pytest.approx([2.9, 2.9])
    assert not average.model.weight.requires_grad


def test_the_average_is_what_is_evaluated() -> None:
    report = nhwc.train(certain, settings(ema=0.99))
    assert report.average is not None
    assert report.evaluation is not None
    assert report.evaluation.averaged
    assert not torch.equal(report.average[0].weight, report.model[0].weight)


def test_accumulated_batches_are_one_step_of_the_mean_gradient() -> None:
    def model(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(300, classes))

    whole = train(settings(batch=8), model)
    parts = train(settings(batch=2, accumulate=4), model)
    for one, other in zip(whole.steps, parts.steps, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)


def test_the_rest_of_an_epoch_is_a_smaller_step() -> None:
    kept = train(settings(batch=8, samples=40, accumulate=2, epochs=1))
    assert [(each.step, each.steps) for each in kept.steps] == [(1, 3), (2, 3), (3, 3)]
    assert kept.notes[2] == "3 steps an epoch, of 16 images (its last of 8), 1 process on cpu"
    few = train(settings(batch=8, samples=40, accumulate=9, epochs=1))
    assert [(each.step, each.steps) for each in few.steps] == [(1, 1)]
    assert few.notes[2] == "1 step an epoch, of 40 images (fewer batches than accumulate 9), 1 process on cpu"


@pytest.mark.parametrize(("amp", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), (None, torch.float32)])
def test_mixed_precision(amp: str | None, dtype: torch.dtype) -> None:
    seen: set[torch.dtype] = set()

    def model(classes: int) -> nn.Module:
        made = certain(classes)
        made.register_forward_hook(lambda _module, _inputs, logits: seen.add(logits.dtype))
        return made

    kept = train(settings(amp=amp, lr=0.02), model)
    assert seen == {dtype}
    assert kept.steps[-1].average_loss < kept.steps[0].loss


@pytest.mark.slow
def test_compiled() -> None:
    plain = train(settings(max_steps=3), certain)
    made = train(settings(max_steps=3, compile=True), certain)
    assert made.notes[0].endswith("nhwc's kernels off")
    for one, other in zip(made.steps, plain.steps, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)


def test_random_states_come_back() -> None:
    import random

    import numpy

    device = torch.device("cpu")
    before = random_state(device)
    first = (torch.rand(3).tolist(), random.random(), numpy.random.rand())
    set_random_state(before, device)
    assert (torch.rand(3).tolist(), random.random(), numpy.random.rand()) == first


class Clock:
    def __init__(self, *times: float) -> None:
        self.times = list(times)

    def __call__(self) -> float:
        return self.times.pop(0)


def test_shares_of_time_add_up() -> None:
    watch = Stopwatch(torch.device("cpu"))
    watch._now = Clock(0.0, 1.0, 3.0, 5.0, 6.0, 6.5, 7.0)
    watch.start()
    watch.mark("data")  # 1
    watch.mark("forward")  # 2
    watch.gradient_ready()  # at 5
    watch.mark_backward()  # at 6: one second behind the last gradient
    watch.mark_backward()  # 6.5: no gradient was told
    watch.mark("optimizer")
    watch.collect()
    wanted = {"data": 1.0, "forward": 2.0, "backward": 2.5, "communication": 1.0, "optimizer": 0.5}
    assert watch.seconds == wanted


def test_the_report_says_where_the_time_went() -> None:
    report = nhwc.train(certain, settings())
    assert set(report.shares.seconds) == set(PARTS)
    assert sum(report.shares.share(part) or 0.0 for part in PARTS) == pytest.approx(1.0)
    assert report.shares.total_s <= report.seconds
    assert (report.epochs, report.updates, report.images) == (3, 12, 96)
    assert report.images_per_s == pytest.approx(96 / report.seconds)
    assert report.best_top1 == max(report.best_top1 or 0, 0)
    assert report.summary()[0].startswith("12 steps, 3 epochs; ")


def test_ctrl_c_is_noted_once_and_obeyed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with listening() as request:
            signal.raise_signal(signal.SIGTERM)
            assert request.made
            signal.raise_signal(signal.SIGINT)  # at once: the same request on two ways
            monkeypatch.setattr("nhwc.training.stopping._ONE_REQUEST_S", 0.0)
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_that_is_ignored_stays_so_and_other_threads_do_not_listen() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with listening():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    heard: list[bool] = []

    def listen() -> None:
        with listening() as request:
            heard.append(request.made)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [False]


def test_one_process_says_that_it_shards_nothing() -> None:
    said = train(settings(max_steps=1, fsdp=True)).notes
    assert "there is one process: fsdp and sync_batch_norm change nothing; start several with torchrun" in said


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(TrainingError, match="device 'nothing' cannot be used"):
        train(settings(device="nothing"))


class Failing(nn.Module):
    """Logits that are no numbers once it is evaluated for the second time."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inside, self.evaluated = certain(classes), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inside(images)
        self.evaluated += not self.training
        return found if self.training or self.evaluated < 2 else found * float("nan")


def test_an_evaluation_that_gives_no_number_ends_the_run_and_replaces_nothing(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the loss is nan at epoch 1, step 4; try a lower lr"):
        train(settings(folder=tmp_path), Failing)
    for name in ("last.pt", "best.pt"):
        assert torch.load(tmp_path / name, weights_only=True)["place"] == {"epoch": 1, "step": 0, "update": 4}

    def always(classes: int) -> nn.Module:
        model = Failing(classes)
        model.evaluated = 2
        return model

    with pytest.raises(
        TrainingError, match="the loss is nan: the checkpoint gives no numbers; evaluate an earlier one"
    ):
        train(settings(folder=tmp_path, resume=True, evaluate_only=True), always)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    for line in (tmp_path / "log.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_of_sixteen_bits_count_every_image(dtype: torch.dtype) -> None:
    sums = Sums(torch.device("cpu"))
    for _ in range(9):
        sums.add(torch.zeros(2571, 3, dtype=dtype), torch.zeros(2571, dtype=torch.int64), torch.ones((), dtype=dtype))
    found = means(sums.values)
    assert (found.images, found.loss, found.top5) == (9 * 2571, 1.0, 100.0)


def test_sums_on_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.zeros

    def without(*shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return plain(*shape, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "zeros", without)
    sums = Sums(torch.device("cpu"))
    monkeypatch.undo()
    sums.add(torch.eye(3), torch.tensor([0, 1, 0]), torch.tensor(2.0))
    assert sums.values.dtype == torch.float32
    assert (means(sums.values).images, means(sums.values).loss) == (3, 2.0)


def killing(classes: int) -> nn.Module:
    """A model that ends the processes that read data while it runs."""
    model = certain(classes)

    def kill(*_: object) -> None:
        for each in multiprocessing.active_children():
            each.kill()
        time.sleep(20)  # torch raises here as soon as it hears of it

    model.register_forward_pre_hook(kill)
    return model


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_worker_that_is_killed_while_the_model_runs_is_not_the_models_fault() -> None:
    with pytest.raises(
        DataError, match=r"a worker process of the loader ended \(DataLoader worker .* killed by signal"
    ):
        train(settings(workers=1), killing)


def test_weights_that_are_no_numbers_after_the_last_step_are_never_kept(tmp_path: Path) -> None:
    import numpy

    faces = numpy.random.default_rng(0)  # none to evaluate on, which would tell
    pictures, labels = faces.integers(0, 255, (32, 10, 10, 3), dtype="uint8"), faces.integers(0, 3, 32)
    numpy.savez(tmp_path / "faces.npz", x_train=pictures, y_train=labels)
    asked = {"data": str(tmp_path / "faces.npz"), "size": None, "folder": tmp_path}
    train(settings(**asked, max_steps=2), certain)
    before = (tmp_path / "last.pt").read_bytes()

    def poisoned(classes: int) -> nn.Module:
        made = certain(classes)
        made[0].weight.register_hook(lambda gradient: gradient * float("inf"))
        return made

    with pytest.raises(
        TrainingError, match=r"the weights are no numbers after epoch 0, step 3; try a lower lr.*is from before$"
    ):
        train(settings(**asked, max_steps=3, resume=True), poisoned)
    assert (tmp_path / "last.pt").read_bytes() == before


def test_parameters_without_a_gradient_are_named() -> None:
    model = certain(3)
    model[8].bias.requires_grad_(False)
    model(torch.randn(2, 3, 10, 10)).sum().backward()
    require_gradients(model)
    model[1].weight.grad = model[1].bias.grad = None
    with pytest.raises(
        TrainingError, match=r"^the loss does not depend on 1.weight, 1.bias, so that .* set requires_grad=False on it"
    ):
        require_gradients(model)


@pytest.mark.parametrize("problem", [None, KeyboardInterrupt])
def test_random_state_and_modes_are_the_callers_again(problem: type[BaseException] | None) -> None:
    import random

    import numpy

    model = tiny(3).eval()
    model[1].train()

    def stop(*_: object) -> None:
        if problem is not None:
            raise problem

    model.register_forward_hook(stop)
    modes = [each.training for each in model.modules()]
    before = random_state(torch.device("cpu"))
    first = (torch.rand(3).tolist(), random.random(), numpy.random.rand())
    set_random_state(before, torch.device("cpu"))
    with contextlib.suppress(KeyboardInterrupt):
        nhwc.train(model, settings(max_steps=1, seed=9))
    assert (torch.rand(3).tolist(), random.random(), numpy.random.rand()) == first
    assert [each.training for each in model.modules()] == modes


def test_a_device_that_holds_no_numbers() -> None:
    with pytest.raises(TrainingError, match="device 'meta' cannot be used: it holds no numbers; name cpu or cuda"):
        train(settings(device="meta"))


@pytest.mark.parametrize("seed", [2**63 - 1, 2**32])
def test_large_seeds(seed: int) -> None:
    assert train(settings(seed=seed, max_steps=1)).steps
