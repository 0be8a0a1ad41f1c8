"""``nhwc audit``: from the command line to what the audit is asked for, and from its report to an exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cli.conftest import TINY, FakeApi, Ran, make_finding, make_report
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensor

from nhwc.cli import exits
from nhwc.errors import ModelError

Run = Callable[..., Ran]


def raising(error: BaseException) -> Callable[[], None]:
    def throw() -> None:
        raise error

    return throw


def test_a_named_model_is_audited_with_the_inputs_it_takes(run: Run, api: FakeApi) -> None:
    ran = run("audit", "resnet18")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "terminal report of 0 findings\n"
    ((model, (x,), options),) = api.calls
    assert type(model).__name__ == "ResNet"
    assert x.shape == (8, 3, 224, 224)
    del options["progress"]
    assert options == {
        "kwargs": {},
        "train": False,
        "convert": "auto",
        "amp": None,
        "compile": False,
        "static": False,
        "repeats": 5,
        "target": "resnet18",
    }


def test_every_option_reaches_the_audit(run: Run, api: FakeApi, tiny: Path) -> None:
    arguments = [
        "--input",
        "2x3x8x8",
        "--input",
        "4:int64",
        "--train",
        "--amp",
        "bf16",
        "--compile",
        "--repeats",
        "2",
        "--as-is",
    ]
    assert run("audit", "tiny.py:net", *arguments, "--threads", "1").code == 0
    ((_, (x, y), options),) = api.calls
    assert (x.shape, y.dtype) == ((2, 3, 8, 8), torch.int64)
    assert (options["train"], options["compile"], options["repeats"]) == (True, True, 2)
    assert (options["amp"], options["convert"]) == (torch.bfloat16, False)
    assert torch.get_num_threads() == 1


def test_the_seed_repeats_weights_and_inputs(run: Run, api: FakeApi, tiny: Path) -> None:
    for seed in ("1", "1", "2"):
        run("audit", "tiny.py:net", "--input", "1x3x4x4", "--seed", seed)
    (one, (x1,), _), (same, (x2,), _), (other, (x3,), _) = api.calls
    assert torch.equal(one.weight, same.weight)
    assert torch.equal(x1, x2)
    assert not torch.equal(one.weight, other.weight)
    assert not torch.equal(x1, x3)


def test_inputs_and_keywords_that_the_target_brings_are_used(run: Run, api: FakeApi, tiny: Path) -> None:
    assert run("audit", "tiny.py:with_tuple").code == 0
    assert run("audit", "tiny.py:with_keywords").code == 0
    (_, with_tuple, _), (_, with_keywords, options) = api.calls
    assert with_tuple[1] == 5
    assert with_keywords == ()
    assert options["kwargs"]["x"].shape == (2, 3, 8, 8)


def test_an_input_overrules_what_the_target_brings(run: Run, api: FakeApi, tiny: Path) -> None:
    run("audit", "tiny.py:with_keywords", "--input", "1x3x6x6")
    ((_, (x,), options),) = api.calls
    assert x.shape == (1, 3, 6, 6)
    assert options["kwargs"] == {}


def test_pictures_are_fed_and_repeated_with_a_word(run: Run, api: FakeApi, tiny: Path) -> None:
    Path("pictures").mkdir()
    Image.effect_noise((40, 30), 50).save("pictures/a.png")
    ran = run("audit", "tiny.py:net", "--images", "pictures", "--input", "2x3x16x16")
    assert ran.err == "nhwc: 1 picture for a batch of 2: they come round again\n"
    ((_, (x,), options),) = api.calls
    assert x.shape == (2, 3, 16, 16)
    assert options["target"] == "tiny.py:net on 1 picture of pictures"


def test_pictures_that_take_the_place_of_own_inputs_are_mentioned(run: Run, api: FakeApi, tiny: Path) -> None:
    Image.effect_noise((40, 30), 50).save("a.png")
    ran = run("audit", "tiny.py:with_one", "--images", "a.png", "--input", "1x3x16x16")
    assert ran.err == "nhwc: tiny.py:with_one brings its own inputs: the pictures take their place\n"
    ((_, (x,), options),) = api.calls
    assert (x.shape, options["target"]) == ((1, 3, 16, 16), "tiny.py:with_one on 1 picture of a.png")


def test_detection_models_train_on_targets_also_from_a_shape(run: Run, api: FakeApi) -> None:
    arguments = ("audit", "ssdlite320_mobilenet_v3_large", "--input", "2x3x64x64")
    run(*arguments)
    run(*arguments, "--train")
    (_, (images,), _), (_, (also_images, boxes), _) = api.calls
    assert [image.shape for image in images] == [image.shape for image in also_images] == [(3, 64, 64)] * 2
    assert len(boxes) == 2


def test_a_static_audit_is_all_fake_on_any_device(run: Run, api: FakeApi) -> None:
    ran = run("audit", "resnet18", "--static", "--device", "cuda", "--batch", "256")
    assert (ran.code, ran.err) == (0, "")
    ((model, (x,), options),) = api.calls
    assert options["static"] is True
    assert isinstance(x, FakeTensor)
    assert isinstance(model.conv1.weight.data, FakeTensor)
    assert (x.shape, str(x.device), str(model.conv1.weight.device)) == ((256, 3, 224, 224), "cuda:0", "cuda:0")


def test_weights_take_no_memory_while_a_static_target_is_built(run: Run, tiny: Path) -> None:
    assert run("audit", "tiny.py:needs_no_memory", "--static").code == 0
    assert "the weight holds memory" in run("audit", "tiny.py:needs_no_memory").err


def test_formats_go_to_stdout(run: Run, tiny: Path) -> None:
    for format_ in ("html", "json"):
        ran = run("audit", "tiny.py:with_one", "--format", format_)
        assert (ran.out, ran.err) == (f"<{format_}: 0 findings>\n", "")


def test_files_are_written_beside_the_terminal_report(run: Run, tiny: Path) -> None:
    Path("pages").mkdir()
    ran = run("audit", "tiny.py:with_one", "-o", "pages/page.html", "-o", "r.json")
    assert ran.out == "terminal report of 0 findings\n"
    assert ran.err == "nhwc: wrote pages/page.html\nnhwc: wrote r.json\n"
    assert Path("pages/page.html").read_text() == "<html: 0 findings>"
    assert Path("r.json").read_text() == "<json: 0 findings>"


def test_the_format_option_overrules_the_ending(run: Run, tiny: Path) -> None:
    run("audit", "tiny.py:with_one", "--format", "json", "-o", "report.out")
    assert Path("report.out").read_text() == "<json: 0 findings>"


def test_a_failing_condition_exits_with_1_after_the_report(run: Run, api: FakeApi, tiny: Path) -> None:
    api.report = make_report(make_finding())
    ran = run("audit", "tiny.py:with_one", "--fail-on", "NH101", "--fail-on", "1GB", "--fail-on", "1%", "-o", "r.json")
    assert ran.code == exits.ExitCode.CONDITION_HOLDS == 1
    assert Path("r.json").exists()
    assert ran.err == (
        "nhwc: wrote r.json\n"
        "nhwc: --fail-on NH101: NH101 was found in 1 call\n"
        "nhwc: --fail-on 1%: 4.0 % of the step lost (4 ms), over 1 %\n"
    )
    assert run("audit", "tiny.py:with_one", "--fail-on", "NH102").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["resnet81"], "did you mean resnet18"),
        (["tiny.py:net"], "tiny.py:net came without inputs; give --input 8x3x224x224 or return (module, inputs)"),
        (["tiny.py:raises"], "tiny.py:raises raised ValueError: no weights here"),
        (["tiny.py:with_one", "--batch", "3"], "brings its own inputs; leave out --batch"),
        (["tiny.py:net", "--input", "1x3x4x4", "--batch", "3"], "--batch and --input both give the batch"),
        (["tiny.py:net", "--input", "3by4"], "--input '3by4' is no shape"),
        (["tiny.py:net", "--input", "2x3:float31"], "no dtype 'float31'"),
        (["tiny.py:with_one", "--images", "nowhere"], "--images nowhere: no such folder or picture"),
        (["tiny.py:with_one", "--images", "bad.png"], "cannot read the picture bad.png: cannot identify image file\n"),
        (["tiny.py:with_one", "--device", "gpu"], "--device gpu cannot be used: Expected one of cpu, cuda"),
        (
            ["tiny.py:with_one", "--device", "vulkan"],
            "--device vulkan cannot be used: this torch has no vulkan backend",
        ),
        (["tiny.py:with_one", "--device", "meta"], "--device meta computes nothing; use --static"),
        (["tiny.py:with_one", "--amp", "fp8"], "--amp 'fp8' is unknown; use bf16 or fp16"),
        (["tiny.py:with_one", "--format", "xml"], "--format 'xml' is unknown; the formats are html, json, text"),
        (["tiny.py:with_one", "-o", "report"], "-o report: its ending names no format"),
        (["tiny.py:with_one", "-o", "new/r.json"], "-o new/r.json: there is no folder new; make it, or correct"),
        (["tiny.py:with_one", "-o", "bad.png/r.json"], "a file stands where the folder bad.png should be"),
        (["tiny.py:with_one", "-o", ".", "--format", "json"], "-o . is a folder; name a file in it, such as"),
        (["tiny.py:with_one", "--fail-on", "NH999"], "no such rule"),
        (["tiny.py:with_one", "--fail-on", "5%", "--static"], "needs measured times"),
        (["tiny.py:with_one", "--fail-on", "5%", "--repeats", "0"], "needs measured times"),
        (["tiny.py:with_one", "--fail-on", "nh103", "--static"], "--fail-on NH103 can never hold with --static"),
        (["tiny.py:with_one", "--input", "0x3x8x8"], "--input '0x3x8x8' has no elements"),
        (["tiny.py:empty"], "tiny.py:empty brings an empty batch of shape (0, 3, 8, 8)"),
        (["timm/convnext_atto"], "is neither a model's name nor file.py:callable; did you mean convnext_atto?"),
        (["tiny.py:with_one", "--nonsense"], "no such option: --nonsense"),
        (["tiny.py:with_one", "--batch", "0"], "invalid value for '--batch'"),
        ([], "missing argument"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    run: Run, api: FakeApi, tiny: Path, arguments: list[str], sentence: str
) -> None:
    Path("bad.png").write_bytes(b"nothing")
    ran = run("audit", *arguments)
    assert ran.code == exits.ExitCode.BAD_INPUT == 2
    assert ran.err.startswith("nhwc: ")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""
    assert api.calls == []


def test_a_model_that_raises_is_one_sentence(run: Run, api: FakeApi, tiny: Path) -> None:
    api.during = raising(ModelError("the model raised RuntimeError:\n  mat1 and mat2"))
    ran = run("audit", "tiny.py:with_one")
    sentence = "nhwc: the model raised RuntimeError: mat1 and mat2; --debug shows the traceback\n"
    assert (ran.code, ran.err) == (2, sentence)


def test_a_model_that_raises_names_the_users_line(run: Run, tiny: Path) -> None:
    ran = run("audit", "tiny.py:raises")
    line = TINY.splitlines().index('    raise ValueError("no\\n  weights here")') + 1
    said = f"tiny.py:raises raised ValueError: no weights here (tiny.py:{line})"
    assert (ran.code, ran.err) == (2, f"nhwc: {said}; --debug shows the traceback\n")
    assert run("audit", "tiny.py:raises", "--debug").err.endswith(f"nhwc: {said}\n")


def test_a_model_that_leaves_is_bad_input(run: Run, api: FakeApi, tiny: Path) -> None:
    api.during = raising(SystemExit(3))
    ran = run("audit", "tiny.py:with_one")
    assert ran.code == exits.ExitCode.BAD_INPUT
    assert ran.err.startswith("nhwc: the model raised SystemExit: 3")
    assert ran.err.count("\n") == 1


def test_debug_shows_the_traceback_first(run: Run, api: FakeApi, tiny: Path) -> None:
    api.during = raising(ModelError("mine"))
    ran = run("audit", "tiny.py:with_one", "--debug")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert ran.err.endswith("nhwc: mine\n")


def test_ctrl_c_is_one_line_and_130(run: Run, api: FakeApi, tiny: Path) -> None:
    api.during = raising(KeyboardInterrupt())
    ran = run("audit", "tiny.py:with_one", "-o", "r.json")
    assert (ran.code, ran.err, ran.out) == (130, "nhwc: interrupted\n", "")
    assert not Path("r.json").exists()


def test_a_fault_of_ours_says_so(run: Run, api: FakeApi, tiny: Path) -> None:
    api.during = raising(KeyError("layer9"))
    ran = run("audit", "tiny.py:with_one")
    assert ran.code == exits.ExitCode.INTERNAL_FAULT == 3
    assert ran.err == "nhwc: a fault in nhwc itself, KeyError: 'layer9'; run again with --debug and report it\n"


def test_an_existing_file_survives_a_failed_audit(run: Run, api: FakeApi, tiny: Path) -> None:
    Path("r.json").write_text(json.dumps("kept"))
    api.during = raising(ModelError("mine"))
    assert run("audit", "tiny.py:with_one", "-o", "r.json").code == 2
    assert json.loads(Path("r.json").read_text()) == "kept"


def test_an_unknown_command_is_one_sentence_and_none_at_all_shows_the_help(run: Run) -> None:
    ran = run("what")
    assert (ran.code, ran.err) == (2, "nhwc: no such command 'what'; see nhwc --help\n")
    ran = run()
    assert (ran.code, ran.err) == (2, "")
    assert "audit" in ran.out


def test_the_help_knows_every_exit_code(run: Run) -> None:
    said = run("audit", "--help").out.partition("Exit codes:")[2].partition("Arguments")[0]
    assert all(str(int(code)) in said for code in exits.ExitCode)


def test_the_version_is_the_package_version(run: Run) -> None:
    import nhwc

    assert run("--version").out == f"nhwc {nhwc.__version__}\n"
