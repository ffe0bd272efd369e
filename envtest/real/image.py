"""Makes the one image of a test cluster: busybox with its applets, as sandbox and as workload.

Samples name images of public registries. It has their names as well, so they run here and nothing is pulled.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

from envtest.client.errors import MissingPrerequisite
from envtest.real.render import IMAGE

FOLDERS = ("bin", "dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "var")
PUBLIC_NAMES = ("docker.io/library/ubuntu:24.04", "docker.io/library/busybox:1.37")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As in the images whose names it has: ``nvidia-smi`` is found in /usr/bin, where CDI puts it."""
# From Python's name of a machine to that of the image specification (GOARCH).
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def busybox_image() -> bytes:
    """A docker archive with the image ``localhost/busybox:1``, also by ``PUBLIC_NAMES``; its command sleeps.

    Raises:
        MissingPrerequisite: there is no busybox on the PATH.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise MissingPrerequisite("there is no busybox: apt-get install busybox-static")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    layer = root_filesystem(Path(busybox), listed.stdout.split())
    # diff_ids are digests of the layers before compression; this one is not compressed.
    digest = hashlib.sha256(layer).hexdigest()
    machine = platform.machine()
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": [f"PATH={PATH}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE, *PUBLIC_NAMES], "Layers": ["layer.tar"]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, "layer.tar", layer)
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return archive.getvalue()


def root_filesystem(busybox: Path, applets: list[str]) -> bytes:
    """A tar archive with busybox, a link for each applet and the folders that a container needs."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return layer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
