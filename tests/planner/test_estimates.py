"""Times of calls that were not measured: by the bytes of alike calls, of all calls, or of a plain copy."""

from dataclasses import replace

import pytest
from planner.traces import Steps, tensor

from nhwc.planner import estimate_ms
from nhwc.planner.estimates import moved_bytes

#: Reads and writes one tensor.
CALL = Steps().call("a", (1,), 2).calls[0]
#: Reads two, and writes one.
LONGER = replace(CALL, inputs=(tensor(1), tensor(3)))
OTHER = replace(CALL, operator="aten.sigmoid.default")


def test_the_bytes_of_operands_and_results_count() -> None:
    assert moved_bytes(CALL) == 2 * tensor(0).nbytes
    assert moved_bytes(LONGER) == 3 * tensor(0).nbytes


def test_calls_of_the_same_operator_tell_it() -> None:
    assert estimate_ms(LONGER, [(CALL, 2.0), (OTHER, 80.0), (OTHER, 90.0)]) == pytest.approx(3.0)


def test_the_usual_one_of_several_counts() -> None:
    assert estimate_ms(CALL, [(CALL, 1.0), (CALL, 2.0), (CALL, 30.0)]) == pytest.approx(2.0)


def test_without_one_of_the_operator_all_tell_it() -> None:
    assert estimate_ms(CALL, [(OTHER, 8.0), (replace(OTHER, inputs=(), outputs=()), 99.0)]) == pytest.approx(8.0)


def test_without_any_it_is_that_of_a_copy() -> None:
    large = replace(CALL, inputs=(replace(tensor(1), shape=(1, 1, 1000, 1250)),), outputs=())
    assert estimate_ms(large, []) == pytest.approx(1.0)  # 5 MB at 5 GB/s
