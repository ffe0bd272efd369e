"""A fake library is one that the linker's own tools take for real."""

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from fakegpu.driver_files.elf_library import elf_library

MACHINE = platform.machine()


@pytest.mark.skipif(MACHINE not in ("x86_64", "aarch64"), reason="needs an x86_64 or aarch64 processor")
def test_the_loader_loads_it_and_finds_nothing_in_it(tmp_path: Path) -> None:
    file = tmp_path / "libfoo.so.580.1"
    file.write_bytes(elf_library("libfoo.so.1", MACHINE))

    library = ctypes.CDLL(str(file))

    with pytest.raises(AttributeError, match="undefined symbol"):
        library.cuInit  # noqa: B018 - looking is the test


def test_ldconfig_links_it_by_its_soname(tmp_path: Path) -> None:
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if ldconfig is None:
        pytest.skip("needs ldconfig (install it)")
    (tmp_path / "libfoo.so.580.1").write_bytes(elf_library("libfoo.so.1", MACHINE))

    subprocess.run([ldconfig, "-n", str(tmp_path)], check=True)

    assert (tmp_path / "libfoo.so.1").readlink() == Path("libfoo.so.580.1")
