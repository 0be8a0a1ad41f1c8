"""Inputs from shapes, from known models and from pictures."""

from collections import namedtuple
from pathlib import Path

import pytest
import torch
from PIL import Image

from nhwc.cli import inputs, recipes, zoo
from nhwc.cli.inputs import InputShape, parse_input, random_input
from nhwc.cli.pictures import find_pictures
from nhwc.cli.recipes import Kind
from nhwc.errors import TargetError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("8x3x224x224", InputShape((8, 3, 224, 224))),
        ("8X3X4X4:BF16", InputShape((8, 3, 4, 4), "bfloat16")),
        ("2x5:int64", InputShape((2, 5), "int64")),
        ("7:long", InputShape((7,), "int64")),
    ],
)
def test_shapes_are_read(text: str, shape: InputShape) -> None:
    assert parse_input(text) == shape


@pytest.mark.parametrize("text", ["", "8x", "x8", "8x-1", "8,3", "8x3.5", "axb", ":int64"])
def test_what_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(TargetError, match=r"is no shape; write sizes joined by x.*2x5:int64"):
        parse_input(text)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "complex64", "float8_e4m3fn"])
def test_random_floats_have_their_dtype_and_vary(dtype: str) -> None:
    made = random_input(InputShape((4, 4), dtype))
    assert made.dtype is getattr(torch, dtype)
    assert len(set(made.to(torch.complex128).flatten().tolist())) > 4


def test_whole_numbers_index_any_table_and_bytes_fill_their_range() -> None:
    assert set(random_input(InputShape((99,), "int64")).tolist()) == {0, 1}
    assert random_input(InputShape((9,), "bool")).dtype is torch.bool
    assert random_input(InputShape((999,), "uint8")).max() > 200


@pytest.mark.parametrize("dtype", ["float31", "nn", "tensor"])
def test_a_dtype_that_torch_lacks_is_refused(dtype: str) -> None:
    with pytest.raises(TargetError, match=f"no dtype '{dtype}'"):
        random_input(InputShape((2,), dtype))


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    for number, size in enumerate([(60, 40), (40, 50), (64, 64)]):
        Image.effect_noise(size, 60).convert("RGB").save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "shapes"),
    [
        ("resnet18", Kind.IMAGE, [(8, 3, 224, 224)]),
        ("r3d_18", Kind.CLIP, [(2, 3, 16, 112, 112)]),
        ("raft_small", Kind.FLOW, [(2, 3, 256, 256)] * 2),
        ("lraspp_mobilenet_v3_large", Kind.SEGMENTATION, [(2, 3, 520, 520)]),
        ("mobilenetv4_conv_small", Kind.IMAGE, [(8, 3, 224, 224)]),  # timm's
    ],
)
def test_known_models_get_what_they_take(
    name: str, kind: Kind, shapes: list[tuple[int, ...]], photographs: Path
) -> None:
    _, recipe = zoo.load(name)
    assert recipe.kind is kind
    made = inputs.default_inputs(recipe, None)
    assert [tuple(tensor.shape) for tensor in made] == shapes
    filled, count = inputs.from_pictures(find_pictures(photographs), recipe, None)
    assert [tuple(tensor.shape) for tensor in filled] == shapes
    assert count == min(3, kind.batch)
    assert all(tensor.dtype is torch.float32 and type(tensor) is torch.Tensor for tensor in filled)


def test_a_model_that_needs_another_size_gets_it() -> None:
    _, recipe = zoo.load("inception_v3")
    assert recipe.sample == (3, 299, 299)


def test_a_model_smaller_than_its_best_weights_gets_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Module()
    model.image_size = 224
    transform = type("ImageClassification", (), {"crop_size": [518]})()
    assert zoo._torchvision_recipe(model, transform).sample == (3, 224, 224)


def test_detection_models_get_a_list_and_boxes_to_train_on(photographs: Path) -> None:
    model, recipe = zoo.load("ssdlite320_mobilenet_v3_large")
    (images,) = inputs.default_inputs(recipe, 3)
    assert [tuple(image.shape) for image in images] == [(3, 480, 640)] * 3
    assert 0 <= min(image.min() for image in images) <= max(image.max() for image in images) <= 1
    (read,), _ = inputs.from_pictures(find_pictures(photographs), recipe, None)
    assert [tuple(image.shape) for image in read] == [(3, 40, 60), (3, 50, 40)]
    first, _second = inputs.boxes_for(read, model)
    assert set(first) == {"boxes", "labels"}
    assert first["boxes"].tolist() == [[15, 10, 45, 30]]


def test_masks_and_keypoints_come_where_the_model_learns_them() -> None:
    class Heads:
        def has_mask(self) -> bool:
            return True

        has_keypoint = has_mask

    model = torch.nn.Module()
    model.roi_heads = Heads()
    (target,) = inputs.boxes_for([torch.zeros(3, 8, 8)], model)
    assert target["masks"].sum() == 16
    assert target["keypoints"].shape == (1, 17, 3)


def test_clips_and_flow_move(photographs: Path) -> None:
    (clip,), _ = inputs.from_pictures(find_pictures(photographs), recipes.usual((3, 4, 16, 16)), 1)
    assert clip.shape == (1, 3, 4, 16, 16)
    assert not torch.equal(clip[:, :, 0], clip[:, :, 3])


def test_pictures_are_normalised_as_usual(tmp_path: Path) -> None:
    Image.new("RGB", (30, 30), (255, 0, 0)).save(tmp_path / "red.png")
    (made,), _ = inputs.from_pictures(find_pictures(tmp_path), recipes.usual((3, 8, 10)), 1)
    assert made.shape == (1, 3, 8, 10)
    red = torch.tensor([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225])
    torch.testing.assert_close(made[0, :, 4, 5], red)


def test_pictures_come_round_again_where_the_batch_is_larger(photographs: Path) -> None:
    (made,), count = inputs.from_pictures(find_pictures(photographs), recipes.usual((3, 8, 8)), 5)
    assert count == 3
    assert torch.equal(made[0], made[3])
    assert not torch.equal(made[0], made[1])


def test_an_input_shape_overrules_the_size_that_the_model_asks_for() -> None:
    recipe, batch = inputs.recipe_for(zoo.load("resnet18")[1], [parse_input("5x3x64x32")])
    assert (recipe.sample, batch) == ((3, 64, 32), 5)
    with pytest.raises(TargetError, match="--images fills one input"):
        inputs.recipe_for(None, [parse_input("5x3x64x32")] * 2)


@pytest.mark.parametrize("sample", [(4, 8, 8), (3, 8), (3, 0, 8), ()])
def test_a_shape_that_no_picture_fits_is_refused(sample: tuple[int, ...]) -> None:
    with pytest.raises(TargetError, match="pictures cannot become samples of"):
        recipes.usual(sample)


def test_tensors_are_placed_wherever_they_are_nested() -> None:
    pair = namedtuple("pair", "left right")
    nested = {"a": [torch.zeros(2), 5], "b": pair(torch.zeros(3), "text")}
    moved = inputs.placed(nested, torch.device("meta"), fake=False)
    assert moved["a"][0].is_meta
    assert moved["a"][1] == 5
    assert isinstance(moved["b"], pair)
    assert moved["b"].left.is_meta
    assert moved["b"].right == "text"


def test_a_fake_placement_keeps_the_strides() -> None:
    x = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert inputs.placed((x,), CPU, fake=True)[0].stride() == x.stride()
