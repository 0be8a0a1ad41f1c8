"""A conversion for the time of a block."""

import pytest
import torch
from torch import nn

from nhwc.conversion import converted
from nhwc.errors import ConversionError


def facts(model):
    tensors = {name: (t.data_ptr(), t.stride()) for name, t in model.state_dict(keep_vars=True).items()}
    gradients = {name: (p.grad.data_ptr(), p.grad.stride()) for name, p in model.named_parameters()}
    return tensors, gradients, set(vars(model)), dict(model._load_state_dict_post_hooks)


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_the_very_memory_comes_back(error):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4))
    model(torch.randn(1, 3, 8, 8)).sum().backward()
    before = facts(model)

    def block():
        with converted(model):
            assert [m.weight.stride() for m in model] == [(27, 1, 9, 3), (9, 1, 3, 1)]
            assert model[0].weight.grad.stride() == (27, 1, 9, 3)
            if error:
                raise error

    if error:
        with pytest.raises(error):
            block()
    else:
        block()
    assert facts(model) == before


def test_it_refuses_as_convert_does():
    with (
        pytest.raises(ConversionError, match=r"0\.weight: it is not initialized"),
        converted(nn.Sequential(nn.LazyConv2d(3, 3))),
    ):
        pass
