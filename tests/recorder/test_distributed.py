"""Models that DistributedDataParallel wraps: paths, gradients, and the layouts of every rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
from recorder.conftest import TRAIN, Small
from recorder.test_calls import calls
from torch.nn.parallel import DistributedDataParallel

from nhwc.recorder import Options, record

pytestmark = [
    pytest.mark.usefixtures("few_threads"),
    pytest.mark.skipif(not distributed.is_available(), reason="this torch is built without torch.distributed"),
]


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_a_wrapped_model(
    one_rank: None, leaves_no_trace: Callable[..., None], small: Small, image: torch.Tensor
) -> None:
    wrapped = DistributedDataParallel(small, gradient_as_bucket_view=True)
    wrapped(image).sum().backward()
    leaves_no_trace(wrapped)
    trace = record(wrapped, image, options=TRAIN)
    assert [call.module for call in calls(trace, "convolution")] == ["conv", "block.0.0"]
    assert [call.module for call in calls(trace, "convolution_backward")] == ["block.0.0", "conv"]
    assert [parameter.name for parameter in trace.parameters][:2] == ["conv.weight", "conv.bias"]
    assert all(parameter.gradient is not None for parameter in trace.parameters)
    assert [rank.rank for rank in trace.ranks] == [0]
    assert trace.ranks[0].tensors[0] == ("conv.weight", (4, 3, 3, 3), (27, 9, 3, 1))
    assert "norm.running_mean" in [name for name, _, _ in trace.ranks[0].tensors]


def test_an_unwrapped_model_in_a_process_group(one_rank: None, small: Small, image: torch.Tensor) -> None:
    trace = record(small, image)
    assert trace.ranks == ()
    assert any("pass process_group= on every rank" in limit for limit in trace.limits)
    trace = record(small, image, options=Options(process_group=distributed.group.WORLD))
    assert len(trace.ranks) == 1
    assert not any("process_group=" in limit for limit in trace.limits)


def test_a_static_recording_of_a_wrapped_model_is_of_the_model_inside(
    one_rank: None, small: Small, image: torch.Tensor
) -> None:
    trace = record(DistributedDataParallel(small), image, options=Options(static=True, train=True))
    assert [call.module for call in calls(trace, "convolution")] == ["conv", "block.0.0"]
    assert calls(trace, "convolution")[0].inputs[1].name == "conv.weight"


RANK = """
import json, sys
import torch, torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from nhwc import rules
from nhwc.recorder import Options, record

rank, meeting = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
torch.manual_seed(0)

class Model(nn.Sequential):
    pass

model = Model(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
image = torch.randn(2, 3, 8, 8)
same = record(DistributedDataParallel(model), image, options=Options(train=True))
if rank == 1:
    model.to(memory_format=torch.channels_last)
group = distributed.group.WORLD
other = record(model, image, options=Options(train=True, process_group=group))
found = {name: [[f.code, f.severity.value, f.message] for f in rules.find(trace, ["NH402"])] for name, trace in
         (("same", same), ("other", other))}
found["ranks"] = [[r.rank, list(r.tensors[0][2])] for r in other.ranks]
print(json.dumps(found))
distributed.destroy_process_group()
"""


def test_two_ranks_with_different_layouts(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[2] / "src")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
        )
        for rank in (0, 1)
    ]
    outputs = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    for output in outputs:
        found = json.loads(output.splitlines()[-1])
        assert found["ranks"] == [[0, [27, 9, 3, 1]], [1, [27, 1, 9, 3]]]
        assert found["same"] == []
        ((code, severity, message),) = found["other"]
        assert (code, severity) == ("NH402", "error")
        assert "0.weight" in message
