"""The registry refuses what would be ambiguous, and names what it knows."""

import fnmatch

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


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["pad", "cat"], r"kernels are named one by one: use\('pad', 'cat'\), not as one list"),
        (("pad",), r"kernels are named one by one: use\('pad'\), not as one tuple"),
        (nhwc.kernels.kernels()[0], r"kernels are named by text, one by one: use\('activation_backward'\)"),
        (3, "a kernel is named by text, as in use.*, not by 3"),
    ],
)
def test_what_is_no_name_is_refused_in_a_sentence(given: object, sentence: str) -> None:
    with pytest.raises(RegistryError, match=sentence), nhwc.kernels.use(given):  # type: ignore[arg-type]
        pytest.fail("the block must not be entered")
    assert nhwc.kernels.active() == ()


@pytest.mark.parametrize("operator", ["instance_norm", "aten::instance_norm", "aten.instance_norm.default"])
def test_an_operator_of_torchs_may_be_named_without_its_namespace(operator: str) -> None:
    found = nhwc.kernels.replacing(operator)
    assert found is not None
    assert found.name == "instance_norm"
    assert nhwc.kernels.replacing("roi_align") is None  # torchvision's


def test_what_needs_the_library_is_among_what_a_kernel_replaces() -> None:
    for each in nhwc.kernels.kernels():
        for pattern in each.native_only:
            assert each.native
            assert any(fnmatch.fnmatchcase(operator, pattern) for operator in each.operators), (each.name, pattern)
    interpolate = nhwc.kernels.replacing("upsample_bicubic2d")
    assert interpolate is not None
    assert interpolate.is_native_only("aten.upsample_bicubic2d.default")
    assert not interpolate.is_native_only("aten::upsample_nearest2d")
