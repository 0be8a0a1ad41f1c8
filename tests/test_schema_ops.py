"""Surveys as versioned JSON: written, read back equal, refused where damaged."""

import json
from typing import Any

import pytest
from made_up_operators import survey

from nhwc.errors import SchemaError
from nhwc.report.ops import chosen
from nhwc.schema import OPS_VERSION, dump_ops, load_ops


def test_what_is_written_is_read_back_equal() -> None:
    document = dump_ops(survey())
    assert (document["format"], document["version"]) == ("nhwc-ops", OPS_VERSION)
    assert load_ops(document) == survey()
    assert load_ops(json.dumps(document)) == survey()


def damaged(**changes: Any) -> dict[str, Any]:
    document = json.loads(json.dumps(dump_ops(survey())))
    document["rows"][0].update(changes)
    return document


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"dims": 4}, r"rows\[0\].dims: expected 2 or 3, got 4"),
        ({"truth": "perhaps"}, r"rows\[0\].truth: expected one of right"),
        ({"forward": {"handling": "keeps", "kept": -1}}, r"rows\[0\].forward: a count is below 0"),
        ({"forward": {"handling": "gone"}}, r"rows\[0\].forward.handling: expected one of keeps"),
        ({"colour": 1}, r"rows\[0\].colour: is a field that this version does not have"),
        ({"dtype": "bfloat16"}, r"rows\[1\]: there is a row of the same operator before it"),
    ],
)
def test_damage_is_refused_with_its_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(SchemaError, match=place):
        load_ops(damaged(**changes))


def test_an_interval_that_does_not_hold_its_ratio_is_refused() -> None:
    document = dump_ops(survey())
    document["rows"][2]["speed"]["ratio"]["low"] = 0.9
    with pytest.raises(SchemaError, match=r"rows\[2\].ratio: 0.5 does not lie within 0.9"):
        load_ops(document)


def test_another_format_and_a_newer_version_are_refused() -> None:
    with pytest.raises(SchemaError, match="has the format 'nhwc-bench', not 'nhwc-ops'"):
        load_ops({**dump_ops(survey()), "format": "nhwc-bench"})
    with pytest.raises(SchemaError, match="update nhwc to read it"):
        load_ops({**dump_ops(survey()), "version": OPS_VERSION + 1})


def test_a_part_keeps_what_it_is_a_part_of() -> None:
    part = chosen(survey(), "relu")
    assert part.whole is not None
    document = dump_ops(part)
    assert load_ops(document) == part
    document["whole"]["rows"] = 1
    with pytest.raises(SchemaError, match="whole: it says less than the rows that are here"):
        load_ops(document)
