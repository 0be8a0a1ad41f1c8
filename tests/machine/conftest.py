from pathlib import Path

import pytest
from machine.made_up import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
