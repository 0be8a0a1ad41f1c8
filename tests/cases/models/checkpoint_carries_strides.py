"""tracel-ai/burn#5383: saved channels-last weights keep their strides; readers of the bare storage get them scrambled.

``load_state_dict`` keeps the target's layout by default and takes the file's with ``assign=True``.
``nhwc.contiguous_state_dict`` writes what any reader understands. The audit has nothing to say of a checkpoint.
(ultralytics/ultralytics#25983 too.)
"""

import io

import torch
from torch import nn

import nhwc

EXPECT = {
    "clean": ["conv2d"],
    "strides": {"weight": (27, 1, 9, 3)},
    "observe": {
        "values_equal": True,
        "saved_strides": (27, 1, 9, 3),
        "storage_equal": False,
        "storage_of_contiguous_state_dict_equal": True,
        "loaded_by_copy": (27, 9, 3, 1),
        "loaded_by_assign": (27, 1, 9, 3),
    },
}


def build():
    return nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 6, 6),)


def loaded(state, **options):
    model = nn.Conv2d(3, 4, 3)
    model.load_state_dict(state, **options)
    return model.weight.stride()


def saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer)


def bare(weight):
    """What a reader sees that takes the storage and the shape, and no strides."""
    return torch.tensor(weight.untyped_storage(), dtype=torch.uint8).view(torch.float32).reshape(weight.shape)


def observe():
    model, _ = build()
    reference = model.weight.detach().clone()
    nhwc.convert(model)
    state = saved(model.state_dict())
    return {
        "values_equal": torch.equal(state["weight"], reference),
        "saved_strides": state["weight"].stride(),
        "storage_equal": torch.equal(bare(state["weight"]), reference),
        "storage_of_contiguous_state_dict_equal": torch.equal(
            bare(saved(nhwc.contiguous_state_dict(model))["weight"]), reference
        ),
        "loaded_by_copy": loaded(state),
        "loaded_by_assign": loaded(state, assign=True),
    }
