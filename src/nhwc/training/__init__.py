"""The training program: what ``nhwc.train`` and ``nhwc train`` run, on the public pieces of nhwc alone."""

from __future__ import annotations

from nhwc.training.logs import JsonLog, TextLog
from nhwc.training.records import EvaluationRecord, Sink, StepRecord, evaluation_line, step_line
from nhwc.training.result import TrainReport
from nhwc.training.settings import WORDS, TrainSettings
from nhwc.training.spelling import naming

__all__ = [
    "WORDS",
    "EvaluationRecord",
    "JsonLog",
    "Sink",
    "StepRecord",
    "TextLog",
    "TrainReport",
    "TrainSettings",
    "evaluation_line",
    "naming",
    "step_line",
]
