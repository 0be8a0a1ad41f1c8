"""Models by the name that torchvision or timm gives them, built without a download, each with its recipe."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nhwc.cli.exits import one_line
from nhwc.cli.recipes import Kind, Recipe, usual, vision
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from torch import nn

_CLIP_FRAMES = 16
_DETECTION_SAMPLE = (3, 480, 640)
_FLOW_SAMPLE = (3, 256, 256)
_SLOWLY_INITIALISED = ("googlenet", "inception_v3")  # torchvision warns that it takes long; layouts do not need it


def load(name: str) -> tuple[nn.Module, Recipe]:
    """The model of that name with random weights, and its recipe.

    Raises TargetError for a name that neither library knows, with the nearest ones that they do.
    """
    models, timm = _libraries_with(name)
    return _from_timm(timm, name) if models is None else _from_torchvision(models, name)


def classifier(name: str) -> tuple[Callable[[int], nn.Module], int | None]:
    """A function from a number of classes to the model of that name, initialised at random for training, and the side
    of the square images it is usually given, or None where that is unknown.

    Raises TargetError for a name that neither library knows, and for one that is no classifier of images.
    """
    models, timm = _libraries_with(name)
    if models is not None:
        return _torchvision_classifier(models, name)
    return lambda classes: _built(name, lambda: timm.create_model(name, num_classes=classes)), _timm_side(name)


def _libraries_with(name: str) -> tuple[Any, Any]:
    """(torchvision.models, None) or (None, timm), whichever has a model of that name; TargetError where none has."""
    known: list[str] = []
    try:
        models = vision().models
    except TargetError:
        models = None
    if models is not None:
        if name in models.list_models():
            return models, None
        known += models.list_models()
    timm = _timm()
    if timm is not None:
        if timm.is_model(name):
            return None, timm
        known += timm.list_models()
    raise TargetError(_unknown(name, known))


def _torchvision_classifier(models: Any, name: str) -> tuple[Callable[[int], nn.Module], int]:
    transform = models.get_model_weights(name).DEFAULT.transforms()
    if type(transform).__name__ != "ImageClassification":
        raise TargetError(f"{name} is no classifier of images; train one such as resnet50")
    builder = models.get_model_builder(name)
    options: dict[str, object] = {"weights": None}
    if name.endswith(_SLOWLY_INITIALISED) and "quantized" not in name:
        options["init_weights"] = True  # slow, but what a training begins with
    (side,) = transform.crop_size
    return lambda classes: _built(name, lambda: builder(num_classes=classes, **options)), side


def _timm_side(name: str) -> int | None:
    from timm.models import get_pretrained_cfg

    config = get_pretrained_cfg(name)
    return None if config is None else config.input_size[-1]


def _unknown(name: str, known: list[str]) -> str:
    if not known:
        return f"no model {name!r}: neither torchvision nor timm is installed; pip install 'nhwc[vision,timm]'"
    near = difflib.get_close_matches(name, dict.fromkeys(known), n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "write it as package.module:callable or file.py:callable"
    return f"no model named {name!r} in torchvision or timm; {hint}"


def _timm() -> Any:
    try:
        import timm
    except ImportError:
        return None
    return timm


def _from_torchvision(models: Any, name: str) -> tuple[nn.Module, Recipe]:
    builder = models.get_model_builder(name)
    takes = inspect.signature(builder).parameters
    options: dict[str, object] = {key: None for key in ("weights", "weights_backbone") if key in takes}
    if name.endswith(_SLOWLY_INITIALISED):
        options["init_weights"] = False
    model = _built(name, lambda: builder(**options))
    return model, _torchvision_recipe(model, models.get_model_weights(name).DEFAULT.transforms())


def _torchvision_recipe(model: nn.Module, transform: Any) -> Recipe:
    name = type(transform).__name__
    if name == "ObjectDetection":
        return Recipe(Kind.DETECTION, _DETECTION_SAMPLE, transform)
    if name == "OpticalFlow":
        return Recipe(Kind.FLOW, _FLOW_SAMPLE, transform)
    if name == "SemanticSegmentation":
        (side,) = transform.resize_size
        return Recipe(Kind.SEGMENTATION, (3, side, side), transform)
    if name == "VideoClassification":
        return Recipe(Kind.CLIP, (3, _CLIP_FRAMES, *transform.crop_size), transform)
    (side,) = transform.crop_size
    built_for = getattr(model, "image_size", side)
    if built_for != side:  # the weights that the transform belongs to come with another size of model
        return usual((3, built_for, built_for))
    return Recipe(Kind.IMAGE, (3, side, side), transform)


def _from_timm(timm: Any, name: str) -> tuple[nn.Module, Recipe]:
    from timm.data import create_transform, resolve_data_config

    model = _built(name, lambda: timm.create_model(name, pretrained=False))
    config = resolve_data_config({}, model=model)
    return model, Recipe(Kind.IMAGE, tuple(config["input_size"]), create_transform(**config))


def _built(name: str, build: Any) -> nn.Module:
    try:
        model: nn.Module = build()
    except Exception as error:
        raise TargetError(f"building {name} failed with {type(error).__name__}: {one_line(error)}") from error
    return model
