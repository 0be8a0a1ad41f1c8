"""The checks that need several ranks, on two and on four processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed
from distributed.ranks import checks_in, run

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")

CHECKS = checks_in("training", "norm", "layouts", "states")
AGAIN = checks_in("loading")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder: Path) -> dict[str, list[str]]:
    return run(CHECKS, folder, 2)


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str, two: dict[str, list[str]]) -> None:
    assert two[check] == ["", ""], "\n".join(two[check])


@pytest.fixture(scope="module")
def four(folder: Path, two: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    assert two["states::check_shares_are_saved"] == ["", ""]
    return run(AGAIN, tmp_path_factory.mktemp("four"), 4, SAVED=str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("check", AGAIN)
def test_on_four_ranks_with_what_two_saved(check: str, four: dict[str, list[str]]) -> None:
    assert four[check] == [""] * 4, "\n".join(four[check])


def test_one_process_with_what_two_saved(folder: Path, two: dict[str, list[str]]) -> None:
    from distributed.checks.states import load_and_go_on, plain

    from nhwc.distributed import World

    assert two["states::check_shares_are_saved"] == ["", ""]
    load_and_go_on(World(), folder, build=plain)


@pytest.fixture(scope="module")
def all_on_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return run(CHECKS, tmp_path_factory.mktemp("all_on_four"), 4, timeout_s=700)


@pytest.mark.slow
@pytest.mark.timeout(800)
@pytest.mark.parametrize("check", CHECKS)
def test_on_four_ranks(check: str, all_on_four: dict[str, list[str]]) -> None:
    assert all_on_four[check] == [""] * 4, "\n".join(all_on_four[check])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_models_of_the_tutorial(tmp_path: Path) -> None:
    (ended,) = run(checks_in("tutorial"), tmp_path, 2, timeout_s=1400).values()
    assert ended == ["", ""], "\n".join(ended)
