"""Imports point down only."""

import sys
from pathlib import Path

import pytest
from meta.project import PACKAGE, imported, modules

DATA = {
    "errors",
    "strides",
    "model",
    "timing",
    "proof",
    "health",
    "suite",
    "kept_times",
    "operators",
    "plan",
    "engine_report",
    "optimization_report",
    "progress",
    "whole_files",
    "schema",
}
MACHINE = {"machine"}
TORCH_PARTS = {"recorder", "formats", "kernels", "ops", "measure", "data", "distributed"}
PURE_PARTS = {"rules", "planner", "report", "suites"}
JOINERS = {"conversion", "inference", "optimization", "training", "variants", "verification"}
BELOW_API = DATA | MACHINE | TORCH_PARTS | PURE_PARTS | JOINERS

#: part → the other parts it may import. The package's own __init__ and __main__ stand above all.
MAY_USE: dict[str, set[str]] = {
    **dict.fromkeys(DATA, DATA),
    **dict.fromkeys(PURE_PARTS | MACHINE, DATA),
    **dict.fromkeys(TORCH_PARTS, DATA | MACHINE),
    "formats": DATA | MACHINE | {"kernels"},  # the conversion between formats is a kernel
    "data": DATA | {"formats", "kernels"},  # a batch in channels last, normalised by a kernel
    "conversion": DATA | {"formats"},
    "distributed": DATA | {"formats", "conversion"},
    "inference": DATA | {"formats", "kernels", "conversion"},
    "training": DATA | {"data", "distributed", "conversion", "kernels", "formats"},
    "optimization": DATA | {"formats", "conversion", "kernels"},
    "variants": DATA | MACHINE | {"formats", "conversion", "recorder", "kernels", "inference", "optimization"},
    "verification": DATA | MACHINE | {"formats", "conversion", "recorder", "variants"},
    "api": BELOW_API,
    "cli": DATA | PURE_PARTS | {"api"},  # pure ones, so that it can check words before torch is there
    "integrations": {"api", "model", "errors"},
}

#: part or file → the packages it may import besides the standard library. What is not listed may use none.
PACKAGES: dict[str, set[str]] = {
    "ops/samples/vision.py": {"torchvision"},
    **{f"kernels/triton/{file}.py": {"triton"} for file in ("types", "programs/conversion", "programs/grid_sample")},
    **{f"kernels/triton/programs/{file}.py": {"triton"} for file in ("norm", "pool_average")},
    **{part: {"torch"} for part in TORCH_PARTS | MACHINE | JOINERS | {"api"}},
    **{f"data/{file}.py": {"PIL"} for file in ("arrow", "decoding")},
    "data/arrays.py": {"numpy"},
    "training/randomness.py": {"numpy"},
    "verification/reproduction/writer.py": {"jinja2"},
    "cli": {"typer", "rich", "torch", "torchvision", "timm", "PIL", "numpy"},
    "report/health.py": {"rich"},
    "report/ops/to_terminal.py": {"rich"},
    "report/terminal.py": {"rich"},
    "report/to_terminal.py": {"rich"},
    "report/verification/to_terminal.py": {"rich"},
    "report/bench/to_terminal.py": {"rich"},
    "report/engine/to_terminal.py": {"rich"},
    "planner/mincut.py": {"numpy", "scipy"},
    "report/optimization/to_terminal.py": {"rich"},
    "report/plan/to_terminal.py": {"rich"},
    "inference/saving/files.py": {"safetensors"},
    "report/templating.py": {"jinja2", "markupsafe"},
    "report/bench/chart.py": {"markupsafe"},
    "report/suite/to_terminal.py": {"rich"},
    "report/to_html.py": {"jinja2", "markupsafe"},
}

#: A namespace whose verbs join pieces from above it; its own __init__ only names them, as the package's does.
NAMESPACES = {"ops/__init__.py"}

FILES = [
    path
    for path in modules()
    if (path.parent != PACKAGE or path.stem not in {"__init__", "__main__"})
    and path.relative_to(PACKAGE).as_posix() not in NAMESPACES
]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_only_parts_below_its_own(path: Path) -> None:
    part = part_of(path)
    assert part in MAY_USE, f"{part} has no level yet; add it to the table above"
    used = {name.split(".")[1] for name in imported(path) if name.startswith("nhwc.")}
    assert used <= MAY_USE[part] | {part}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_only_the_packages_of_its_level(path: Path) -> None:
    allowed = PACKAGES.get(part_of(path), set()) | PACKAGES.get(name_of(path), set())
    used = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names) - {"nhwc"}
    assert used <= allowed


def test_the_data_modules_import_each_other_without_a_cycle() -> None:
    uses: dict[str, set[str]] = {name: set() for name in DATA}
    for path in modules():
        if part_of(path) in DATA:
            used = {name.split(".")[1] for name in imported(path) if name.startswith("nhwc.")}
            uses[part_of(path)] |= used & DATA - {part_of(path)}
    while leaves := {name for name, used in uses.items() if not used}:
        uses = {name: used - leaves for name, used in uses.items() if name not in leaves}
    assert uses == {}
