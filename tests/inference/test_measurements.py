"""The engine's measured times are kept in files of their own; tests/test_kept_times.py has the rest."""

from pathlib import Path

from nhwc.inference.measurements import VERSION, Measurements


def test_what_one_engine_saves_another_reads(tmp_path: Path) -> None:
    first = Measurements("a machine", tmp_path)
    first.put("request", {"direct": 1.5})
    first.save()
    assert Measurements("a machine", tmp_path).get("request") == {"direct": 1.5}
    assert Measurements("another machine", tmp_path).get("request") is None
    assert [path.name.startswith(f"engine-v{VERSION}-") for path in tmp_path.glob("*.json")] == [True]
