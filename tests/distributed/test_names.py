"""The namespace: what it names, and what it loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from distributed.ranks import environment

from nhwc import distributed


def test_type_checkers_see_the_same_names_from_the_same_files() -> None:
    tree = ast.parse(Path(distributed.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == {name: f"nhwc.distributed.{home}" for name, home in distributed._HOME_OF.items()}
    assert sorted(seen) == sorted(distributed.__all__)
    assert not {path.stem for path in Path(distributed.__file__).parent.glob("*.py")} & set(seen)


@pytest.mark.parametrize("name", distributed.__all__)
def test_every_name_is_there_and_described(name: str) -> None:
    assert name in dir(distributed)
    assert getattr(distributed, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'nhwc\.distributed' has no attribute 'worlds'"):
        _ = distributed.worlds


def test_one_process_loads_neither_fsdp_nor_checkpoints() -> None:
    code = (
        "import sys; from nhwc.distributed import accumulating, data_parallel, joined, sync_batch_norm\n"
        "with joined(): pass\n"
        "heavy = ['torch.distributed.fsdp', 'torch.distributed.checkpoint', 'torch.distributed.tensor']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == "[]"
