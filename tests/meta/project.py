"""Where the project's own files are, for the tests that read them."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "nhwc"


def modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def tracked() -> list[Path]:
    """Every file that git tracks and that is there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def imported(path: Path) -> Iterator[str]:
    """Dotted names of all modules that a file imports, at its top, in functions and for types alike."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively, which hides its level"
            if node.module == "nhwc":
                # `from nhwc import rules` names a part of the package, `from nhwc import __version__` does not.
                yield from (f"nhwc.{alias.name}" for alias in node.names if _is_part(alias.name))
            else:
                yield node.module or ""


def _is_part(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
