"""Engines saved and loaded: the same numbers, without the model, on this machine and on others."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from inference.engines import with_statistics
from torch import nn

import nhwc
from nhwc.errors import EngineError, SchemaError
from nhwc.inference.contents import Origin
from nhwc.inference.saving import files


class Net(nn.Module):
    """Convolutions of several kinds, a constant, a join, an activation with weights, and what only torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.PReLU(16))
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.second = nn.Conv2d(16, 24, 3, padding=1)
        self.shift = nn.Parameter(torch.randn(1, 24, 1, 1))
        self.head = nn.Linear(40, 7)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        x = self.first(x)
        y = functional.silu(self.second(self.depthwise(x))) * self.shift
        joined = torch.cat([x, y], 1)
        kept = functional.lp_pool2d(joined, 2.0, 2)  # the engine has no step for it
        logits = self.head(joined.mean((2, 3))) * scale
        return OrderedDict(logits=logits, parts=[kept, tuple(y.topk(2, 1))], name="net")


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(5)
    return with_statistics(Net())


@pytest.fixture(scope="module")
def picture() -> torch.Tensor:
    torch.manual_seed(6)
    return torch.randn(2, 3, 20, 18)


@pytest.fixture(scope="module", autouse=True)
def _nothing_kept() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("NHWC_CACHE", "0")
    yield
    patch.undo()


@pytest.fixture(scope="module")
def built(net: nn.Module, picture: torch.Tensor) -> Any:
    return nhwc.engine(net, picture, kwargs={"scale": 2.0}, budget_s=1.0, target="a net")


@pytest.fixture(scope="module")
def saved(built: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "net.engine"
    assert built.save(path) == path
    return path


def assert_same(found: Any, wanted: Any) -> None:
    assert list(found) == list(wanted)
    for one, other in zip(tensors(found), tensors(wanted), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def tensors(outputs: Any) -> list[torch.Tensor]:
    return [outputs["logits"], outputs["parts"][0], *outputs["parts"][1]]


def test_a_loaded_engine_gives_the_same_bits(built: Any, saved: Path, picture: torch.Tensor) -> None:
    loaded = nhwc.load_engine(saved)
    assert loaded.original is None
    wanted = built(picture, scale=2.0)
    assert_same(loaded(picture, scale=2.0), wanted)
    assert isinstance(loaded(picture, scale=2.0), OrderedDict)
    assert loaded(picture, scale=2.0)["name"] == "net"


def test_it_is_ready_in_milliseconds(saved: Path) -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        nhwc.load_engine(saved)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.2


def test_weights_stay_in_the_file(saved: Path, picture: torch.Tensor) -> None:
    loaded = nhwc.load_engine(saved)
    loaded(picture, scale=2.0)
    assert str(saved) in Path("/proc/self/maps").read_text(encoding="utf-8")
    for each in loaded.contents.specializations:
        for plan in each.plans.values():
            held = [tensor for choice in plan.choices.values() for tensor in choice.step.constants]
            assert held
            assert all(tensor.data_ptr() % 64 == 0 for tensor in held)


def test_a_loaded_engine_saves_itself(saved: Path, tmp_path: Path, picture: torch.Tensor) -> None:
    loaded = nhwc.load_engine(saved)
    again = nhwc.load_engine(loaded.save(tmp_path / "again.engine"))
    assert_same(again(picture, scale=2.0), loaded(picture, scale=2.0))
    # no constant is written twice; numbers in the plan may be a few characters longer
    assert abs((tmp_path / "again.engine").stat().st_size - saved.stat().st_size) < 1024


def test_other_inputs_have_nothing_to_run_them(saved: Path, picture: torch.Tensor) -> None:
    loaded = nhwc.load_engine(saved)
    with pytest.raises(
        EngineError, match=r"called with \(1, 3, 20, 18\) .* and it has no original model for other inputs"
    ):
        loaded(picture[:1], scale=2.0)
    with pytest.raises(EngineError, match="no original model"):
        loaded(picture, scale=3.0)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_runs_what_was_chosen(
    built: Any, saved: Path, picture: torch.Tensor, threads: int
) -> None:
    loaded, wanted = nhwc.load_engine(saved), built(picture, scale=2.0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = loaded(picture, scale=2.0)
        assert loaded.report(repeats=1).threads == threads
    finally:
        torch.set_num_threads(before)
    for one, other in zip(tensors(found), tensors(wanted), strict=True):
        torch.testing.assert_close(one, other)


def test_a_process_without_the_model_runs_it(built: Any, saved: Path, picture: torch.Tensor, tmp_path: Path) -> None:
    torch.save(picture, tmp_path / "x.pt")
    code = (
        "import sys, torch, nhwc; x = torch.load(sys.argv[2]); "
        "print(nhwc.load_engine(sys.argv[1])(x, scale=2.0)['logits'].double().sum().item())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved), str(tmp_path / "x.pt")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(nhwc.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(built(picture, scale=2.0)["logits"].double().sum().item(), rel=1e-5)


def test_batches_come_along(tmp_path: Path, picture: torch.Tensor) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    built = nhwc.engine(net, picture, batches=[5], budget_s=0.0)
    loaded = nhwc.load_engine(built.save(tmp_path / "net.engine"))
    some = torch.randn(4, 3, 20, 18)
    assert torch.equal(loaded(some), built(some))
    assert loaded(some).shape[0] == 4


def elsewhere(path: Path, tmp_path: Path, **changes: Any) -> Path:
    """The same file as another machine would have written it."""
    document, held = files.read(path)
    document["origin"].update(changes)
    files.write(tmp_path / "elsewhere.engine", document, held)
    return tmp_path / "elsewhere.engine"


@pytest.mark.parametrize("changes", [{"instruction_set": "sse9"}, {"interface": 1}, {"nhwc": "0.0.1"}])
def test_algorithms_are_chosen_anew_where_the_steps_cannot_run(
    built: Any, saved: Path, tmp_path: Path, picture: torch.Tensor, changes: dict[str, Any]
) -> None:
    loaded = nhwc.load_engine(elsewhere(saved, tmp_path, **changes), budget_s=0.5)
    wanted = built(picture, scale=2.0)
    for one, other in zip(tensors(loaded(picture, scale=2.0)), tensors(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    again = nhwc.load_engine(loaded.save(tmp_path / "retuned.engine"))
    assert again.contents.origin.nhwc == nhwc.__version__
    assert_same(again(picture, scale=2.0), loaded(picture, scale=2.0))


def test_another_processor_alone_changes_nothing(saved: Path, tmp_path: Path, picture: torch.Tensor) -> None:
    moved = nhwc.load_engine(elsewhere(saved, tmp_path, processor="another", torch="2.13.0"))
    assert_same(moved(picture, scale=2.0), nhwc.load_engine(saved)(picture, scale=2.0))


def test_without_weights_the_file_is_smaller_and_stays_here(
    built: Any, saved: Path, tmp_path: Path, picture: torch.Tensor
) -> None:
    small = built.save(tmp_path / "small.engine", portable=False)
    assert small.stat().st_size < saved.stat().st_size
    assert_same(nhwc.load_engine(small)(picture, scale=2.0), built(picture, scale=2.0))
    with pytest.raises(EngineError, match=r"compiled for sse9, and here is .*portable=False"):
        nhwc.load_engine(elsewhere(small, tmp_path, instruction_set="sse9"))


def test_without_a_compiled_library_it_is_refused(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nhwc.api.serving._here", lambda: Origin(nhwc.__version__, 0, "", "", ""))
    with pytest.raises(EngineError, match="here is no compiled library"):
        nhwc.load_engine(saved)


def test_an_operator_that_this_torch_lacks_is_named(saved: Path, tmp_path: Path) -> None:
    document, held = files.read(saved)
    text = json.dumps(document)
    assert "aten.topk.default" in text
    files.write(tmp_path / "newer.engine", json.loads(text.replace("aten.topk.default", "aten.topk9.default")), held)
    with pytest.raises(EngineError, match=r"calls aten\.topk9\.default, which torch .* does not have"):
        nhwc.load_engine(tmp_path / "newer.engine")


@torch.library.custom_op("nhwc_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.nhwc_tests.doubled(x)
        return result


def test_an_operator_of_another_library_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "net.engine"
    path.write_text("what was there")
    engine = nhwc.engine(Custom().eval(), torch.randn(1, 3, 4, 4), budget_s=0.0)
    with pytest.raises(
        EngineError, match=r"nhwc_tests\.doubled\.default, an operator of a library that is not torch's"
    ):
        engine.save(path)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


class Named(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.topk(2, 1)


def test_a_type_without_a_lasting_name_is_refused(tmp_path: Path) -> None:
    engine = nhwc.engine(Named().eval(), torch.randn(1, 3, 4, 4), budget_s=0.0)
    with pytest.raises(EngineError, match=r"the model returns a type that has no name: .*topk"):
        engine.save(tmp_path / "net.engine")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:2000]), "is damaged, or no saved engine"),
        (lambda path: path.write_bytes(b""), "is damaged, or no saved engine|cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-64]), "is damaged, or no saved engine"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"net", b"nit", 1)), "is damaged"),
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: torch.save({}, path), "is damaged, or no saved engine"),
    ],
    ids=["cut", "empty", "short", "changed", "gone", "foreign"],
)
def test_a_damaged_file_is_told_in_one_sentence(saved: Path, tmp_path: Path, damage: Any, words: str) -> None:
    path = tmp_path / "damaged.engine"
    path.write_bytes(saved.read_bytes())
    damage(path)
    with pytest.raises(SchemaError, match=words) as raised:
        nhwc.load_engine(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_changed_bit_of_any_weight_is_found(saved: Path, tmp_path: Path, where: str) -> None:
    content = bytearray(saved.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    ends = [each["data_offsets"] for name, each in header.items() if name.startswith("constant.")]
    largest = max(ends, key=lambda each: each[1] - each[0])
    place = {"first": 0, "middle": sum(largest) // 2, "last": max(end for _, end in ends) - 1}[where]
    content[begin + place] ^= 4
    path = tmp_path / "damaged.engine"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=r"is damaged .its weights are not what was written.; build the engine"):
        nhwc.load_engine(path)


def test_other_safetensors_and_newer_files_are_refused(saved: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(SchemaError, match="is no saved engine"):
        nhwc.load_engine(tmp_path / "weights.safetensors")
    document, held = files.read(saved)
    files.write(tmp_path / "newer.engine", {**document, "version": 99}, held)
    with pytest.raises(SchemaError, match="version 99 and this nhwc reads up to 1; update nhwc"):
        nhwc.load_engine(tmp_path / "newer.engine")


@pytest.mark.parametrize("name", ["items", "places", "buffers", "inputs", "arena_bytes"])
def test_a_plan_with_something_missing_is_damaged(saved: Path, tmp_path: Path, name: str) -> None:
    document, held = files.read(saved)
    del document["specializations"][0]["plans"][0][name]
    files.write(tmp_path / "damaged.engine", document, held)
    with pytest.raises(SchemaError, match="is damaged"):
        nhwc.load_engine(tmp_path / "damaged.engine")


def test_a_step_that_reads_past_its_constants_is_damaged(saved: Path, tmp_path: Path) -> None:
    document, held = files.read(saved)
    items = document["specializations"][0]["plans"][0]["items"]
    step = next(each["step"] for each in items if each.get("step", {}).get("addresses"))
    step["addresses"][0][2] = 1 << 40
    files.write(tmp_path / "damaged.engine", document, held)
    with pytest.raises(SchemaError, match="reads past its constants"):
        nhwc.load_engine(tmp_path / "damaged.engine")


def test_a_folder_that_cannot_be_written_is_told(built: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be written"):
        built.save(tmp_path / "file" / "net.engine")


def test_a_missing_folder_is_told_and_not_made(built: Any, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"there is no folder '.*gone/models' to save the engine in; make it"):
        built.save(tmp_path / "gone" / "models" / "net.engine")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EngineError, match=r"is a folder; name a file in it, such as '.*model\.engine'"):
        built.save(tmp_path)


def test_it_is_copied_by_sharing_and_never_pickled(built: Any, picture: torch.Tensor) -> None:
    copied = copy.deepcopy(built)
    assert copied is not built
    assert type(copied) is type(built)
    assert_same(copied(picture, scale=2.0), built(picture, scale=2.0))
    with pytest.raises(EngineError, match="not pickled"):
        pickle.dumps(built)


def test_released_engines_hold_no_weights_of_the_model(picture: torch.Tensor, tmp_path: Path) -> None:
    net = with_statistics(Net())
    kept = nhwc.engine(net, picture, kwargs={"scale": 1.0}, budget_s=0.0)
    wanted = kept(picture, scale=1.0)
    kept.release()
    assert kept.original is None
    assert_same(kept(picture, scale=1.0), wanted)
    for item in next(iter(kept.contents.specializations[0].plans.values())).placement.items:
        weight = getattr(item.work, "weight", None)
        assert weight is None or weight.is_meta or not item.is_native
    with pytest.raises(EngineError, match="released from its model or loaded"):
        kept.refresh(net)
    with pytest.raises(EngineError, match="portable=False"):
        nhwc.load_engine(elsewhere(kept.save(tmp_path / "net.engine"), tmp_path, instruction_set="sse9"))
    told = nhwc.engine(net, picture, kwargs={"scale": 1.0}, budget_s=0.0, keep_model=False)
    assert told.original is None


def test_lists_among_a_call_are_data(tmp_path: Path) -> None:
    class Flipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            flipped: torch.Tensor = self.conv(x).flip(3).std((2, 3))
            return flipped

    x = torch.randn(1, 3, 9, 9)
    fast = nhwc.engine(Flipped().eval(), x, budget_s=0)
    fast.save(tmp_path / "flipped.engine")
    assert torch.equal(nhwc.load_engine(tmp_path / "flipped.engine")(x), fast(x))
