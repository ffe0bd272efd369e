"""Reads from the configurations of containerd and CRI-O whether, and where, they look for CDI specs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gpuctl.doctor.inside.seen import RuntimeConfig

CONTAINERD_FILES = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "etc/k0s/containerd.toml",
    "var/snap/microk8s/current/args/containerd.toml",
)
"""containerd's own, and those of k3s, RKE2, k0s and MicroK8s, below the host's root."""

CRIO_FILE, CRIO_FOLDER = "etc/crio/crio.conf", "etc/crio/crio.conf.d"
DEFAULT_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Where a runtime looks by default; containerd and CRI-O alike."""

_CONTAINERD_1 = "io.containerd.grpc.v1.cri"
_CONTAINERD_2 = "io.containerd.cri.v1.runtime"
_MOST_BYTES = 1 << 20


def runtime_configs(host_root: Path) -> tuple[RuntimeConfig, ...]:
    """The configurations that are there below the host's root."""
    found = [
        read_containerd(host_root / name, f"/{name}")
        for name in CONTAINERD_FILES
        if (host_root / name).exists()
    ]
    crio = [host_root / CRIO_FILE, *sorted((host_root / CRIO_FOLDER).glob("*.conf"))]
    there = [file for file in crio if file.is_file()]
    if there:
        found.append(_crio(there, host_root))
    return tuple(found)


def read_containerd(file: Path, name: str) -> RuntimeConfig:
    """What containerd's configuration says; of files that it imports the last one counts."""
    try:
        parts = _with_imports(file, name)
        version = max(int(part.get("version") or 0) for part in parts)
        settings: dict[str, Any] = {}
        for part in parts:
            plugins = part.get("plugins") or {}
            settings |= plugins.get(_CONTAINERD_1) or {}
            settings |= plugins.get(_CONTAINERD_2) or {}
        told = settings.get("cdi_spec_dirs")
        folders = None if told is None else tuple(map(str, told))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return RuntimeConfig(name, "containerd", wrong=str(error))
    return RuntimeConfig(name, "containerd", settings.get("enable_cdi"), folders, since_2=version >= 3)


def _with_imports(file: Path, name: str) -> list[dict[str, Any]]:
    """A configuration, then the files that it imports; raises OSError, ValueError, TypeError."""
    parts = [_read(file)]
    for pattern in parts[0].get("imports") or ():
        path = Path(str(pattern))
        base, rest = (file.parent, str(path)) if not path.is_absolute() else _split_root(file, name, path)
        parts += [_read(one) for one in sorted(base.glob(rest)) if one.is_file()]
    return parts


def _split_root(file: Path, name: str, path: Path) -> tuple[Path, str]:
    """Where an absolute path of the host lies here: below the root that ``file`` has its ``name`` from."""
    root = Path(str(file).removesuffix(name) or "/")
    return root, str(path.relative_to("/"))


def _crio(files: list[Path], host_root: Path) -> RuntimeConfig:
    """What CRI-O's files say together; the later ones count. It has had CDI on since 1.23."""
    folders: tuple[str, ...] | None = None
    last = files[-1]
    for file in files:
        try:
            told = ((_read(file).get("crio") or {}).get("runtime") or {}).get("cdi_spec_dirs")
            folders = folders if told is None else tuple(map(str, told))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            return RuntimeConfig(f"/{file.relative_to(host_root)}", "cri-o", wrong=str(error))
    return RuntimeConfig(f"/{last.relative_to(host_root)}", "cri-o", cdi=True, folders=folders)


def _read(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        return tomllib.loads(stream.read(_MOST_BYTES).decode())
