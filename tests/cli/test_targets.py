"""TARGET: models by name, by module and by file; everything that can be wrong with one."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nhwc.cli import targets, zoo
from nhwc.errors import TargetError

pytestmark = pytest.mark.usefixtures("run")  # an empty folder, and sys.path as it was


@pytest.mark.parametrize("name", ["net", "ready", "Holder.build"])
def test_a_callable_or_a_ready_module_in_a_file(tiny: Path, name: str) -> None:
    target = targets.load(f"{tiny}:{name}")
    assert isinstance(target.model, nn.Conv2d)
    assert target.inputs is None


def test_the_inputs_that_a_callable_brings(tiny: Path) -> None:
    assert targets.load(f"{tiny}:with_one").inputs[0].shape == (2, 3, 8, 8)
    assert targets.load(f"{tiny}:with_tuple").inputs[1] == 5
    (images,) = targets.load(f"{tiny}:with_list").inputs
    assert len(images) == 2
    keywords = targets.load(f"{tiny}:with_keywords")
    assert (keywords.inputs, set(keywords.keywords)) == ((), {"x"})


def test_files_beside_the_file_can_be_imported(tiny: Path) -> None:
    (tiny.parent / "main_model.py").write_text("from tiny import net\n")
    assert isinstance(targets.load(f"{tiny.parent}/main_model.py:net").model, nn.Conv2d)


def test_a_module_of_the_current_folder(tiny: Path) -> None:
    assert isinstance(targets.load("tiny:net").model, nn.Conv2d)


def test_a_module_of_an_installed_package() -> None:
    assert isinstance(targets.load("torchvision.models:squeezenet1_1").model, nn.Module)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("resnet81", "no model named 'resnet81' in torchvision or timm; did you mean resnet18"),
        ("zzzzzzzz", "no model named 'zzzzzzzz' .* write it as package.module:callable or file.py:callable"),
        ("nowhere.py:net", "no file nowhere.py"),
        ("tiny.py", "tiny.py names no callable in the file; write tiny.py:NAME"),
        ("no.such.module:net", "no module 'no.such.module' among the installed packages"),
        ("tiny.inner:net", "no module 'tiny.inner'"),
        (":net", "no module ''"),
        ("tiny.py:nett", "tiny.py has no 'nett'; did you mean net?"),
        ("tiny.py:zzzzzz", "tiny.py has no 'zzzzzz'; it has "),
        ("tiny.py:", "tiny.py has no ''"),
        ("tiny.py:number", "tiny.py:number is an object of type int, not a callable that returns a module"),
        ("tiny.py:needs", "is called without arguments, but needs classes; wrap it in a function"),
        ("tiny.py:text", "returned an object of type str; it must return a module, or a module and its inputs"),
        ("tiny.py:nothing", "returned None; it must return"),
        ("tiny.py:too_many", r"returned a module and 2 more values; put its inputs in one tuple: \(module, \(x, y\)\)"),
        ("tiny.py:raises", "tiny.py:raises raised ValueError: no weights here"),
        ("timm/convnext_atto", "is neither a model's name nor file.py:callable; did you mean convnext_atto"),
        ("tiny.py:leaves", "tiny.py:leaves raised SystemExit: 3"),
        ("broken.py:net", "broken.py raised SyntaxError"),
        ("broken:net", "importing broken raised SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_target_is_one_sentence(tiny: Path, target: str, sentence: str) -> None:
    (tiny.parent / "broken.py").write_text("def net(:\n")
    with pytest.raises(TargetError, match=sentence) as caught:
        targets.load(target)
    assert "\n" not in str(caught.value)


def test_without_torchvision_and_timm_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise TargetError("this needs torchvision")

    monkeypatch.setattr(zoo, "vision", missing)
    monkeypatch.setattr(zoo, "_timm", lambda: None)
    with pytest.raises(TargetError, match="neither torchvision nor timm is installed"):
        targets.load("resnet18")


def test_a_builder_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("not enough\nmemory")

    monkeypatch.setattr(torch.nn.Conv2d, "__init__", fails)
    with pytest.raises(TargetError, match="building resnet18 failed with RuntimeError: not enough memory"):
        targets.load("resnet18")
