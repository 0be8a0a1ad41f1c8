"""Models from public reports: what a right tool says of each, found in the case files themselves."""

from __future__ import annotations

import copy
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cases.expectations import Case, check, read_case
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import nhwc
from nhwc.api import AuditReport, audit
from nhwc.strides import channels_last_for

CASES = [read_case(path) for path in sorted((Path(__file__).parent / "models").glob("*.py"))]
OBSERVED = [case for case in CASES if case.observe is not None]

pytestmark = pytest.mark.usefixtures("few_threads")


def by_name(cases: Sequence[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case.path.stem for case in cases])


@pytest.fixture
def module(case: Case) -> Iterator[ModuleType]:
    """The case file, imported."""
    name = f"case_{case.path.stem}"
    spec = importlib.util.spec_from_file_location(name, case.path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    try:
        spec.loader.exec_module(loaded)
        torch.manual_seed(0)
        yield loaded
    finally:
        del sys.modules[name]


def in_channels_last(tree: Any) -> Any:
    def convert(value: Any) -> Any:
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or channels_last_for(value.dim()) is None
        ):
            return value
        return nhwc.to_format(value, channels_last_for(value.dim()))

    return tree_map(convert, tree)


def converted(case: Case, model: nn.Module, inputs: tuple[Any, ...]) -> tuple[nn.Module, tuple[Any, ...]]:
    """Model and inputs as a user of this case would have them."""
    if case.convert in ("both", "model"):
        nhwc.convert(model)
    if case.convert in ("both", "inputs"):
        inputs = in_channels_last(inputs)
    return model, inputs


def audited(case: Case, module: ModuleType) -> AuditReport:
    model, inputs = module.build()
    if case.convert == "both":
        return audit(model, *inputs, train=case.train, convert=True, repeats=0)
    model, inputs = converted(case, model, inputs)
    return audit(model, *inputs, train=case.train, convert=False, repeats=0)


@by_name(CASES)
def test_audit_says_what_the_case_expects(case: Case, module: ModuleType) -> None:
    wrong = check(case, audited(case, module))
    assert not wrong, "\n".join([case.report, *wrong])


@by_name([case for case in CASES if case.outputs_equal is not None])
def test_converted_model_answers_like_the_contiguous_one(case: Case, module: ModuleType) -> None:
    reference, inputs = module.build()
    model, converted_inputs = converted(case, copy.deepcopy(reference), inputs)
    with torch.no_grad():
        want = tree_leaves(reference.eval()(*inputs))
        got = tree_leaves(model.eval()(*converted_inputs))
    close = all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(want, got, strict=True))
    assert close is case.outputs_equal
    for tensor in got if case.output_format is not None else ():
        assert nhwc.layout_of(tensor).kind in (case.output_format, "ambiguous")


@by_name([case for case in CASES if case.strides])
def test_conversion_gives_the_wanted_strides(case: Case, module: ModuleType) -> None:
    model, _ = module.build()
    nhwc.convert(model)
    assert {name: model.get_parameter(name).stride() for name in case.strides} == case.strides


@by_name(OBSERVED)
def test_observation_repeats(case: Case, module: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert module.observe() == case.observe
