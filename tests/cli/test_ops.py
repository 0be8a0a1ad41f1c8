"""``nhwc ops``: what it shows of a saved table, what it refuses, and the diff of two tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Ran
from made_up_operators import FASTER, LOSES, ROWS, SLOWER, row, survey
from typer.testing import CliRunner

from nhwc.cli.main import app
from nhwc.operators import Fault, OperatorRow, Speed, Truth
from nhwc.schema import dump_ops, load_ops
from nhwc.timing import Ratio

Command = Callable[..., Ran]


@pytest.fixture
def ops() -> Command:
    def run(*arguments: str) -> Ran:
        result = CliRunner().invoke(app, ["ops", *arguments])
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(dump_ops(survey())))
    return str(path)


def test_a_saved_table_is_shown_filtered_and_sorted(ops: Command, saved: str) -> None:
    assert "avg_pool3d" in ops(saved).out
    ran = ops(saved, "--only", "problems", "--filter", "idiom")
    assert ran.code == 0
    assert "channel shuffle by hand" in ran.out
    assert "avg_pool3d" not in ran.out
    every = ops(saved, "--sort", "worst").out
    assert every.index("odd") < every.index("avg_pool3d") < every.index("relu")


def test_dtypes_that_agree_share_a_line(ops: Command, saved: str) -> None:
    (line,) = [line for line in ops(saved, "--filter", "relu").out.splitlines() if line.startswith("relu")]
    assert "fp32 bf16" in line


def test_files_are_written_in_the_format_of_their_ending(ops: Command, saved: str, tmp_path: Path) -> None:
    ran = ops(saved, "-o", str(tmp_path / "t.json"), "-o", str(tmp_path / "t.html"))
    assert ran.code == 0
    assert load_ops(tmp_path / "t.json").rows
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")


def test_json_goes_to_stdout_alone(ops: Command, saved: str) -> None:
    assert json.loads(ops(saved, "--json").out)["format"] == "nhwc-ops"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "some"], "write problems"),
        (["--sort", "colour"], "the orders are name, worst"),
        (["--dtype", "int8"], "does not go with SAVED.json"),
        (["--kernels"], "--kernels does not go with SAVED.json, but with a survey"),
        (["--resume", "x.part"], "--resume does not go with SAVED.json"),
        (["--fail-worse"], "--fail-worse does not go with SAVED.json, but with --diff"),
        (["--json", "-o", "x.json"], "--json is for stdout"),
    ],
)
def test_what_makes_no_sense_is_refused(ops: Command, saved: str, arguments: list[str], sentence: str) -> None:
    ran = ops(saved, *arguments)
    assert ran.code == 2
    assert sentence in ran.err


def test_an_unknown_dtype_is_refused(ops: Command) -> None:
    ran = ops("--dtype", "int8")
    assert (ran.code, "name some of fp32, bf16" in ran.err) == (2, True)


def test_the_diff_names_what_changed_and_can_fail(ops: Command, saved: str, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    new.write_text(json.dumps(dump_ops(survey(row("relu", forward=LOSES), *ROWS[1:3], *ROWS[4:], row("newcomer")))))
    ran = ops("--diff", saved, str(new))
    assert ran.code == 0
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "3 changes: 1 worse, 1 gone, 1 new." in lines
    assert "worse relu, 2-D float32 forward keeps → loses" in lines
    assert ops("--diff", saved, str(new), "--fail-worse").code == 1
    assert ops("--diff", saved, saved, "--fail-worse").code == 0
    assert json.loads(ops("--diff", saved, str(new), "--json").out)["changes"][0]["kind"] == "worse"


def test_a_part_of_a_table_says_what_the_whole_one_says_and_how_much_is_shown(
    ops: Command, saved: str, tmp_path: Path
) -> None:
    told = [" ".join(ops(saved, *more).out.split()) for more in ([], ["--only", "problems"], ["--filter", "relu"])]
    headline = told[0].partition("; ")[0]
    assert headline == "2 of 4 operators keep channels last wherever it can be told"
    assert all(text.startswith(headline) for text in told)
    assert "are shown" not in told[0]
    assert "3 of 5 rows are shown" in told[1]
    assert "2 of 5 rows are shown" in told[2]
    part = str(tmp_path / "part.json")
    assert ops(saved, "--filter", "relu", "-o", part).code == 0
    again = " ".join(ops(part).out.split())
    assert again.startswith(headline)
    assert "2 of 5 rows are shown" in again


def test_what_kernels_change_stands_side_by_side(ops: Command, tmp_path: Path) -> None:
    served = {"dims": 3, "kernels": ("avg_pool3d",)}
    before, after = (
        row("avg_pool3d", forward=LOSES, speed=SLOWER, **served),
        row("avg_pool3d", mode="kernels", **served),
    )
    other = row("relu", truth=Truth.WRONG)
    table = written(tmp_path / "t.json", before, after, other, modes=("eager", "kernels"))
    page = tmp_path / "t.txt"
    assert ops(table, "-o", str(page)).code == 0
    lines = [" ".join(line.split()) for line in page.read_text().splitlines()]
    told = " ".join(lines)
    assert "1 of 2 operators keep channels last wherever it can be told; 1 lose it or copy in forward" in told
    assert "kernels of nhwc serve 1 operator: with them switched on 1 keep channels last throughout, without" in told
    assert any(line.startswith("avg_pool3d 3-D fp32 eager avg_pool3d loses keeps keeps right 0.50") for line in lines)
    assert any(line.startswith("avg_pool3d 3-D fp32 kernels avg_pool3d keeps keeps keeps right –") for line in lines)
    assert any(line.startswith("relu 2-D fp32 eager – keeps") for line in lines)


def test_a_table_of_many_speeds_says_how_far_they_can_be_trusted(ops: Command, tmp_path: Path) -> None:
    wide = Speed((2, 8, 6, 5), Ratio(1.0, 0.5, 2.0, 8), 1.0, 1.0)
    rows = [row(f"fine_{place}", speed=FASTER if place < 8 else wide) for place in range(12)]
    told = " ".join(ops(written(tmp_path / "t.json", *rows)).out.split())
    assert "half of the 12 intervals are narrower than 11% to either side, nine in ten than 100%, and 4 cannot" in told


def test_modes_of_our_own_samples_alone_are_compared_for_those(ops: Command, tmp_path: Path) -> None:
    rows = [row("ours", group="idiom", mode="compiled"), row("torch's", mode="compiled")]
    every = written(tmp_path / "old.json", *rows, modes=("eager", "compiled"))
    own = written(tmp_path / "new.json", rows[0], modes=("eager", "compiled"), own_modes=("compiled",))
    told = " ".join(ops("--diff", every, own, "--fail-worse").out.split())
    assert "Nothing changed." in told
    assert "1 of 2 rows of the old one: the modes of nhwc's own samples alone are none in the old table" in told


def test_a_filter_that_no_operator_of_a_saved_table_matches_is_refused_as_by_a_survey(ops: Command, saved: str) -> None:
    ran = ops(saved, "--filter", "nothing of the kind")
    assert ran.code == 2
    assert "has 'nothing of the kind' in its name; leave the filter out to see all" in ran.err
    assert ops(saved, "--filter", "relu", "--only", "problems").code == 0


def written(path: Path, *rows: OperatorRow, **changes: Any) -> str:
    path.write_text(json.dumps(dump_ops(survey(*rows, **changes))))
    return str(path)


def test_the_diff_compares_what_both_tables_cover_and_says_so(ops: Command, saved: str, tmp_path: Path) -> None:
    new = written(tmp_path / "new.json", row("relu", forward=LOSES), filter="relu", dtypes=("float32",))
    ran = ops("--diff", saved, new, "--fail-worse")
    told = " ".join(ran.out.split())
    assert ran.code == 1
    assert "1 change: 1 worse." in told
    assert "Only what both tables cover is compared, which leaves out 4 of 5 rows of the old one: " in told
    assert "the filters are none in the old table and relu in the new one; the dtypes are float32, bfloat16" in told
    document = json.loads(ops("--diff", saved, new, "--json").out)
    assert [each["kind"] for each in document["changes"]] == ["worse"]
    assert "4 of 5 rows of the old one" in document["notes"][0]
    assert "compared" not in ops("--diff", saved, saved).out


def test_what_is_gone_within_the_filter_is_gone(ops: Command, saved: str, tmp_path: Path) -> None:
    part = str(tmp_path / "part.json")
    ops(saved, "--filter", "d", "-o", part)  # all but relu
    new = written(tmp_path / "new.json", *ROWS[:3], ROWS[4])
    told = " ".join(ops("--diff", part, new).out.split())
    assert "1 change: 1 gone." in told
    assert "2 of 4 rows of the new one" in told


def test_tables_that_cannot_be_compared_are_refused(ops: Command, saved: str, tmp_path: Path) -> None:
    problems = str(tmp_path / "problems.json")
    ops(saved, "--only", "problems", "-o", problems)
    ran = ops("--diff", problems, saved)
    assert (ran.code, "the old table holds problems only (--only)" in ran.err) == (2, True)
    half = written(tmp_path / "half.json", row("relu", dtype="float16"), dtypes=("float16",))
    ran = ops("--diff", saved, half)
    assert (ran.code, "nothing in common to compare: the dtypes are float32, bfloat16" in ran.err) == (2, True)


def test_wrong_values_are_explained_in_a_long_table_too(ops: Command, tmp_path: Path) -> None:
    fault = Fault("gradient", "(1, 8, 6, 5)", "", 1.8, 1e-7)
    many = [row(f"fine_{place}", dims=2 + place % 2) for place in range(60)]
    table = written(tmp_path / "t.json", *many, row("bad", truth=Truth.WRONG, faults=(fault,)), ROWS[2])
    told = " ".join(ops(table).out.split())
    assert "bad, 2-D float32: wrong gradient for (1, 8, 6, 5): error 1.8 of the largest value against float64" in told
    assert "where contiguous has 1e-07" in told
    assert "(36, 9, 3, 1)" not in told  # the losses of a long table are for its page


def test_wrong_values_of_a_table_without_details_still_have_their_errors(ops: Command, saved: str) -> None:
    told = " ".join(ops(saved, "--filter", "odd").out.split())
    assert "values: wrong, error 0.5 of the largest value against float64, where contiguous has 2e-07" in told
