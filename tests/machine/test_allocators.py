"""The allocator that serves, and those that could."""

import pytest
from machine.made_up import Tree

from nhwc.machine.allocators import allocator_name, preloadable

LIBC = "7f0000000000-7f0000200000 r-xp 00000000 fe:00 1    /usr/lib/x86_64-linux-gnu/libc.so.6\n"
TCMALLOC = "7f1000000000-7f1000200000 r-xp 00000000 fe:00 2    /usr/lib/libtcmalloc_minimal.so.4.5.10\n"
JEMALLOC = "7f2000000000-7f2000200000 r-xp 00000000 fe:00 3    /usr/lib/a folder/libjemalloc.so.2\n"
HEAP = "55d000000000-55d000100000 rw-p 00000000 00:00 0    [heap]\n7f3000000000-7f3000100000 rw-p 00000000 00:00 0\n"
IN_LIBC, IN_TCMALLOC, NOWHERE = 0x7F0000001000, 0x7F1000001000, 0x1000


@pytest.mark.parametrize(
    ("maps", "address", "name"),
    [
        (HEAP + LIBC, IN_LIBC, "glibc malloc"),
        (LIBC + TCMALLOC, IN_TCMALLOC, "tcmalloc"),
        (LIBC + TCMALLOC, IN_LIBC, "glibc malloc"),  # opened by somebody, serving nobody
        (LIBC + JEMALLOC, NOWHERE, "jemalloc"),
        (LIBC.replace("libc.so.6", "libc-2.31.so"), IN_LIBC, "glibc malloc"),
        (LIBC.replace("libc.so.6", "ld-musl-x86_64.so.1"), IN_LIBC, "musl malloc"),
        (HEAP, NOWHERE, "unknown"),
    ],
)
def test_the_mapping_that_holds_malloc_decides(tree: Tree, maps: str, address: int, name: str) -> None:
    tree.write({"proc/self/maps": maps})
    assert allocator_name(tree.sources(), address) == name


def test_macos_has_its_own_and_a_system_without_maps_is_unknown(tree: Tree) -> None:
    assert allocator_name(tree.sources(system="Darwin")) == "macOS malloc"
    assert allocator_name(tree.sources()) == "unknown"


def test_installed_allocators_are_found_the_smallest_tcmalloc_first(tree: Tree) -> None:
    folder = "lib/x86_64-linux-gnu"
    tree.write(
        {
            f"{folder}/libjemalloc.so.2": "",
            f"{folder}/libtcmalloc.so.4": "",
            f"{folder}/libtcmalloc_minimal.so.4.5": "",
            f"{folder}/libtcmalloc_minimal_debug.so.4": "",
            "lib/libc.so.6": "",
        }
    )
    (tree.root / folder / "libtcmalloc_minimal.so.4").symlink_to("libtcmalloc_minimal.so.4.5")
    names = [path.name for path in preloadable(tree.sources())]
    assert names == ["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libjemalloc.so.2"]


def test_nothing_installed_is_nothing_found(tree: Tree) -> None:
    assert preloadable(tree.sources()) == ()
