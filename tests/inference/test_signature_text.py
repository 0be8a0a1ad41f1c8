"""Arguments in words."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from nhwc.inference.signature_text import arguments_text, signature_text
from nhwc.inference.specialization import signature_of

Pair = namedtuple("Pair", ["left", "right"])

X = torch.zeros(1, 3, 8, 8)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((X,), {}, "(1, 3, 8, 8) float32"),
        ((), {}, "no arguments"),
        ((), {"x": X, "flag": True}, "x=(1, 3, 8, 8) float32, flag=True"),
        (([X, 2.5], (X,)), {}, "[(1, 3, 8, 8) float32, 2.5], ((1, 3, 8, 8) float32,)"),
        (({"a": X, "b": None},), {}, "{'a': (1, 3, 8, 8) float32, 'b': None}"),
        ((Pair(X, "mean"),), {}, "Pair((1, 3, 8, 8) float32, 'mean')"),
        ((X.to("meta"),), {}, "(1, 3, 8, 8) float32 on meta"),
        ((object(),), {}, "a value of type object"),
        (("x" * 50,), {}, "a value of type str"),
    ],
)
def test_a_call_in_words(args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    flat, spec = pytree.tree_flatten((args, kwargs))
    assert arguments_text(flat, spec) == text
    assert signature_text(signature_of(flat), spec) == text


def test_what_has_no_value_to_compare_is_told_as_an_object() -> None:
    flat, spec = pytree.tree_flatten(((bytearray(3),), {}))
    assert signature_text(signature_of(flat), spec) == "an object of the example's"


def test_a_sparse_tensor_is_told_with_its_layout() -> None:
    flat, spec = pytree.tree_flatten(((torch.eye(2).to_sparse(),), {}))
    assert arguments_text(flat, spec) == "(2, 2) float32 on cpu (sparse_coo)"
