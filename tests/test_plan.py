"""What a plan holds for, and what it says of itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from report.plan_sample import plan

from nhwc.plan import FormatTimes, PlanInput, Predicted, tree_digest, why_stale


def subject() -> dict[str, Any]:
    made = plan()
    names = ("environment", "training", "amp", "inputs", "keywords", "tree")
    return {name: getattr(made, name) for name in names}


def test_a_plan_holds_for_what_it_was_made_for() -> None:
    assert why_stale(plan(), **subject()) is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"inputs": (PlanInput("input 0", (8, 3, 64, 64), "float32", "cpu"),)}, "of shape (2, 3, 64, 64)"),
        ({"inputs": (PlanInput("input 0", (2, 3, 64, 64), "bfloat16", "cpu"),)}, "this is bfloat16"),
        ({"inputs": (PlanInput("input 0", (2, 3, 64, 64), "float32", "cuda:0"),)}, "this is cuda:0"),
        ({"inputs": ()}, "this call has 0"),
        ({"environment": replace(plan().environment, torch="2.15")}, "this is torch 2.15"),
        ({"environment": replace(plan().environment, device="cuda A card")}, "this is device cuda A card"),
        ({"environment": replace(plan().environment, threads=7)}, "this is threads 7"),
        ({"training": True}, "this is training"),
        ({"amp": "bfloat16"}, "this is with bfloat16"),
        ({"keywords": ("mask",)}, "this call has ['mask']"),
        ({"tree": "other"}, "another module tree"),
    ],
)
def test_a_stale_plan_says_why(changed: dict[str, Any], reason: str) -> None:
    found = why_stale(plan(), **{**subject(), **changed})
    assert found is not None
    assert reason in found


def test_another_python_or_nhwc_does_not_make_it_stale() -> None:
    environment = replace(plan().environment, python="3.13", nhwc="0.2")
    assert why_stale(plan(), **{**subject(), "environment": environment}) is None


def test_the_digest_is_of_paths_types_and_shapes() -> None:
    def digest(*modules: torch.nn.Module) -> str:
        return tree_digest(torch.nn.Sequential(*modules).named_modules())

    same = digest(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
    assert same == digest(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(inplace=True))
    others = {
        digest(torch.nn.Conv2d(3, 8, 5), torch.nn.ReLU()),
        digest(torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.ReLU()),
        digest(torch.nn.Conv2d(3, 8, 3), torch.nn.GELU()),
        digest(torch.nn.ReLU(), torch.nn.Conv2d(3, 8, 3)),
    }
    assert len(others | {same}) == 5


def test_the_gain_is_over_the_better_plain_format() -> None:
    assert Predicted(3.0, 2.0, 1.0).gain == 2.0
    assert Predicted(0.0, 0.0, 0.0).gain == 1.0
    assert FormatTimes(1.0, 2.0).of("channels_last") == 2.0
    assert plan().format is None
    assert replace(plan(), placements=plan().placements[:1]).format == "channels_last"
    assert plan().estimated
