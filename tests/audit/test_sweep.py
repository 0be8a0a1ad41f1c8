"""Every model that torchvision builds is audited, in evaluation and in training, without an exception."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from audit.zoo import NAMES, sample

from nhwc.api import audit
from nhwc.model import Report

#: Audited in the default run: twelve in evaluation, and those marked True in training as well.
SAMPLE = {
    "alexnet": True,
    "convnext_tiny": False,
    "deeplabv3_mobilenet_v3_large": False,
    "fasterrcnn_mobilenet_v3_large_320_fpn": False,
    "googlenet": False,
    "mnasnet0_5": True,
    "mobilenet_v3_small": False,
    "r3d_18": True,
    "regnet_y_400mf": False,
    "shufflenet_v2_x0_5": True,
    "squeezenet1_1": True,
    "swin_t": False,
}


def steps() -> Iterator[Any]:
    for name in NAMES:
        for train in (False, True):
            quick = name in SAMPLE and (SAMPLE[name] or not train)
            marks = () if quick else pytest.mark.slow
            yield pytest.param(name, train, marks=marks, id=f"{name}-{'train' if train else 'eval'}")


def assert_sound(report: Report) -> None:
    """Every finding stands by itself or right under a culprit; a step that raises in channels last is one of them."""
    assert report.trace.calls
    assert (report.trace.error is not None) == ("NH403" in {finding.code for finding in report.findings})
    findings = {finding.id: finding for finding in report.findings}
    assert len(findings) == len(report.findings)
    assert all(finding.cause is None or findings[finding.cause].cause is None for finding in report.findings)


def test_the_sample_is_of_known_models() -> None:
    assert set(SAMPLE) <= set(NAMES)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "train"), list(steps()))
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("few_threads")
def test_model_is_audited(name: str, train: bool) -> None:
    gc.collect()  # the model before is in cycles with its hooks
    step = sample(name, train=train)
    assert_sound(audit(step.model, *step.inputs, train=train, convert=True, repeats=0))
