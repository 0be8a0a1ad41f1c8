"""Examples of other shapes: other batch sizes of the example, and those that were given."""

import torch

from nhwc.api.other_shapes import Example, other_examples

PICTURE = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)


def test_other_batches_are_cut_or_come_round_again_and_lie_alike() -> None:
    fixed = torch.ones(5)
    example = Example((PICTURE, fixed), {"labels": torch.arange(2), "flag": True})
    three, one = other_examples(example, (), [3, 1, 2])
    picture, same = three.inputs
    assert picture.shape == (3, 3, 4, 4)
    assert torch.equal(picture, PICTURE[[0, 1, 0]])
    assert picture.is_contiguous(memory_format=torch.channels_last)
    assert same is fixed
    assert three.keywords["labels"].tolist() == [0, 1, 0]
    assert three.keywords["flag"] is True
    assert one.inputs[0].shape == (1, 3, 4, 4)


def test_an_input_with_a_gradient_stays_one() -> None:
    (other,) = other_examples(Example((PICTURE.clone().requires_grad_(),), {}), (), [1])
    assert other.inputs[0].requires_grad
    assert other.inputs[0].is_leaf


def test_each_shape_once_and_the_examples_never() -> None:
    example = Example((PICTURE,), {"scale": 2.0})
    found = other_examples(example, [(PICTURE[:1],), [PICTURE]], [1, 2])
    assert [each.shapes for each in found] == [((1, 3, 4, 4),)]
    assert found[0].keywords == {"scale": 2.0}
