"""XPixelGroup/HAT#154: "Grad strides do not match bucket view strides", for strides that describe the same bytes.

The trigger that remains is an unconverted depthwise weight fed with channels last. It is never a copy of the gradient,
so at most a note of zero bytes. Canonical strides on every weight before DistributedDataParallel is built cure it; a
lone ambiguous parameter with such strides makes torch's constructor raise. (open-mmlab/mmsegmentation#3270,
CompVis/latent-diffusion#281 and pytorch/pytorch#70222 ask the same.)
"""

import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import nhwc

EXPECT = {
    "convert": "inputs",
    "train": True,
    "findings": [
        {"code": "NH301", "severity": "note", "module": "0", "phase": "backward", "bytes": 0, "calls": 1},
    ],
    "clean": ["conv2d", "convolution_backward", "AccumulateGrad"],
    "strides": {"0.weight": (9, 1, 3, 1), "1.weight": (8, 1, 8, 8)},
    "observe": {
        "contiguous_weights": {"warns": True, "parameter": (9, 9, 3, 1), "gradient": (9, 1, 3, 1)},
        "converted_weights": {"warns": False, "parameter": (9, 1, 3, 1), "gradient": (9, 1, 3, 1)},
        "lone_ambiguous_parameter": "raises",
        "findings_once_converted": [],
    },
}


def build():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 4, 1))
    return model, (torch.randn(2, 8, 6, 6),)


def step(convert):
    model, (x,) = build()
    if convert:
        nhwc.convert(model)
    wrapped = DistributedDataParallel(model)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            wrapped(nhwc.to_format(x, "channels_last")).sum().backward()
    finally:
        torch.set_warn_always(False)
    return {
        "warns": any("bucket view" in str(warning.message) for warning in caught),
        "parameter": model[0].weight.stride(),
        "gradient": model[0].weight.grad.stride(),
    }


def lone_ambiguous_parameter():
    model = nn.Conv2d(8, 8, 3, groups=8, bias=False).to(memory_format=torch.channels_last)
    try:
        DistributedDataParallel(model)
    except RuntimeError as error:
        return "raises" if "single memory location" in str(error) else str(error)
    return "runs"


def findings_once_converted():
    model, (x,) = build()
    report = nhwc.audit(nhwc.convert(model), nhwc.to_format(x, "channels_last"), train=True, convert=False, repeats=0)
    return [finding.code for finding in report.findings if finding.code == "NH301"]


def observe():
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'store'}", rank=0, world_size=1)
        try:
            facts = {
                "contiguous_weights": step(convert=False),
                "converted_weights": step(convert=True),
                "lone_ambiguous_parameter": lone_ambiguous_parameter(),
            }
        finally:
            dist.destroy_process_group()
    return {**facts, "findings_once_converted": findings_once_converted()}
