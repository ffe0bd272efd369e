"""The first file system of a guest is one that the kernel can unpack, with modules in an order that works."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

from tests import needs
from tests.guest.machine.initramfs import INIT, initramfs, with_needs

MODULES_DEP = """\
kernel/net/9p/9pnet.ko:
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/fscache/fscache.ko kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/fs/fscache/fscache.ko: kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/fs/overlayfs/overlay.ko:
"""
BUILT_IN = "kernel/drivers/char/virtio_console.ko\n"


def test_each_module_comes_after_those_that_it_needs() -> None:
    paths = list(with_needs(("virtio_pci", "9pnet_virtio", "9p"), MODULES_DEP, ""))

    assert [Path(path).stem for path in paths] == [
        "virtio",
        "virtio_ring",
        "virtio_pci",
        "9pnet",
        "9pnet_virtio",
        "netfs",
        "fscache",
        "9p",
    ]


@needs.BUSYBOX
def test_the_archive_is_one_that_cpio_unpacks(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    for line in MODULES_DEP.splitlines():
        path = modules / line.split(":")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"module {path.stem}")
    (modules / "modules.dep").write_text(MODULES_DEP)
    (modules / "modules.builtin").write_text(BUILT_IN)
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"program!!")
    archive = gzip.decompress(initramfs(busybox, modules))
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["busybox", "cpio", "-idm"], input=archive, cwd=there, check=True, capture_output=True)

    assert (there / "bin/busybox").read_bytes() == b"program!!"
    assert (there / "init").read_bytes() == INIT.read_bytes()
    assert (there / "init").stat().st_mode & 0o111
    assert [path.read_text() for path in sorted((there / "modules").iterdir())][:2] == [
        "module virtio",
        "module virtio_ring",
    ]
    assert (there / "proc").is_dir()
