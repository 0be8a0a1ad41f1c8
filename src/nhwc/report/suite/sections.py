"""What every report of a suite says besides its ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.bench.sections import MEANING, settings_text
from nhwc.report.formatting import plural, visible
from nhwc.report.suite.summary import claimed_for

if TYPE_CHECKING:
    from nhwc.suite import SuiteResult


SAMPLES = "The samples of each model are beside this page, in MODEL.MODE.json, such as resnet50.training.json."


def remarks(result: SuiteResult) -> list[str]:
    """How to read the ratios and the ranges beside them."""
    where = claimed_for(result)
    claims = (
        f"The ranges are what the tutorial claims for another machine ({visible(where)}): context for what is measured "
        "here, not put to the test by it."
        if where
        else "The tutorial claims nothing for this kind of device."
    )
    missing = f"{plural(result.missing, 'measurement is', 'measurements are')} missing yet." if result.missing else ""
    return [sentence for sentence in (MEANING, claims, missing) if sentence]


def facts(result: SuiteResult) -> list[tuple[str, str]]:
    """Label and text of the conditions that all measurements of the suite share."""
    where = result.conditions
    started = sorted(row.benchmark.started for row in result.rows if row.benchmark is not None)
    rows = [
        ("Suite", f"{result.suite}: {result.about}"),
        ("Asked for", ", ".join(f"{name} {value}" for name, value in result.settings)),
        ("Device", f"{where.device}, {where.processor}, {where.cores:g} cores, {plural(where.threads, 'thread')}"),
        ("Memory", where.allocator),
        ("System", where.system),
        ("Settings", settings_text(where)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in where.versions)),
        ("Measured", f"{started[0]} to {started[-1]}" if started else ""),
    ]
    return [(label, visible(text)) for label, text in rows if text]
