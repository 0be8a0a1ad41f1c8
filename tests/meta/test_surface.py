"""The public names: one list, the same in the code, in the types and in the docs."""

import ast
import importlib
import re

import pytest
from meta.project import PACKAGE, ROOT

import nhwc


def test_the_docs_describe_exactly_the_public_names() -> None:
    documented = re.findall(r"^#+ `nhwc\.(\w+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted(set(nhwc.__all__) - {"__version__"})


@pytest.mark.parametrize("name", nhwc.__all__)
def test_every_public_name_is_there_and_described(name: str) -> None:
    value = getattr(nhwc, name)
    assert name in dir(nhwc)
    assert name == "__version__" or value.__doc__


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == set(nhwc._HOME_OF.items()) | {(name, "nhwc") for name in nhwc._NAMESPACES}
    assert {name for name, _ in seen} | {"__version__"} == set(nhwc.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nhwc' has no attribute 'audits'"):
        _ = nhwc.audits


@pytest.mark.parametrize("name", sorted(nhwc._NAMESPACES))
def test_a_namespace_is_the_package_of_its_name(name: str) -> None:
    assert getattr(nhwc, name) is importlib.import_module(f"nhwc.{name}")
    assert all(getattr(getattr(nhwc, name), each).__doc__ for each in getattr(nhwc, name).__all__)


@pytest.mark.parametrize("name", sorted(set(nhwc.__all__) - nhwc._NAMESPACES))
def test_no_other_public_name_is_also_a_module(name: str) -> None:
    # Importing such a module would replace the name without a word.
    assert not (PACKAGE / name).exists()
    assert not (PACKAGE / f"{name}.py").exists()
