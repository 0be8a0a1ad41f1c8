"""The registry refuses what would be ambiguous, and names what it knows."""

import pytest

import nhwc
from nhwc.errors import RegistryError
from nhwc.kernels import registry


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_KERNELS", dict(registry._KERNELS))
    monkeypatch.setattr(registry, "_OWNER", dict(registry._OWNER))


def test_a_name_is_taken_once() -> None:
    registry.kernel("mine", "for a test")
    with pytest.raises(RegistryError, match="'mine' is registered twice"):
        registry.kernel("mine", "for a test")


@pytest.mark.parametrize("name", ["Mine", "two words", "", "a-b"])
def test_a_name_is_a_lower_case_word(name: str) -> None:
    with pytest.raises(RegistryError, match="lower-case word"):
        registry.kernel(name, "for a test")


def test_an_operator_is_replaced_by_one_kernel() -> None:
    mine = registry.kernel("mine", "for a test")
    mine.replaces("aten::digamma")(lambda x: x)
    with pytest.raises(RegistryError, match=r"aten::digamma is replaced at CPU by 'mine' already"):
        registry.kernel("other", "for a test").replaces("aten::digamma")


@pytest.mark.parametrize(
    ("operator", "key", "words"), [("digamma", "CPU", "namespace"), ("aten::digamma", "XLA", "'XLA'")]
)
def test_a_replacement_names_operator_and_key(operator: str, key: str, words: str) -> None:
    with pytest.raises(RegistryError, match=words):
        registry.kernel("mine", "for a test").replaces(operator, key)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(RegistryError, match="there is no kernel 'softmx'; did you mean 'softmax'"):
        nhwc.kernels.enable("softmx")


def test_the_kernel_of_an_operator_is_found_by_its_overload() -> None:
    found = nhwc.kernels.replacing("aten.cat.default")
    assert found is not None
    assert found.name == "cat"
    assert nhwc.kernels.replacing("aten::relu") is None


def test_every_kernel_says_what_it_is_and_replaces_something() -> None:
    assert all(each.about and each.replacements for each in nhwc.kernels.kernels())
