"""Reads from the configurations of containerd and CRI-O whether they use CDI, and from which folders."""

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
"""Where containerd and CRI-O look for CDI specs by default."""

_CONTAINERD_1 = "io.containerd.grpc.v1.cri"
_CONTAINERD_2 = "io.containerd.cri.v1.runtime"
_MOST_BYTES = 1 << 20


def runtime_configs(host_root: Path) -> tuple[RuntimeConfig, ...]:
    """The configuration files that exist below the host's root."""
    found = [_containerd(host_root, name) for name in CONTAINERD_FILES if (host_root / name).exists()]
    crio = [host_root / CRIO_FILE, *sorted((host_root / CRIO_FOLDER).glob("*.conf"))]
    there = [file for file in crio if file.is_file()]
    if there:
        found.append(_crio(there, host_root))
    return tuple(found)


def _containerd(host_root: Path, name: str) -> RuntimeConfig:
    """What containerd's configuration says. Files that it imports replace what comes before them."""
    try:
        parts = _with_imports(host_root / name, host_root)
        # The version is that of the file's format; containerd 2 writes version 3, and moved the settings of
        # CRI to a plugin of another name.
        version = max(int(part.get("version") or 0) for part in parts)
        settings: dict[str, Any] = {}
        for part in parts:
            plugins = part.get("plugins") or {}
            settings |= plugins.get(_CONTAINERD_1) or {}
            settings |= plugins.get(_CONTAINERD_2) or {}
        dirs = settings.get("cdi_spec_dirs")
        folders = None if dirs is None else tuple(map(str, dirs))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return RuntimeConfig(f"/{name}", "containerd", wrong=str(error))
    return RuntimeConfig(f"/{name}", "containerd", settings.get("enable_cdi"), folders, since_2=version >= 3)


def _with_imports(file: Path, host_root: Path) -> list[dict[str, Any]]:
    """A configuration, then the files that it imports; raises OSError, ValueError, TypeError."""
    parts = [_read(file)]
    for pattern in parts[0].get("imports") or ():
        # An absolute pattern is a path of the host, another one is relative to the file.
        path = Path(str(pattern))
        base, rest = (host_root, path.relative_to("/")) if path.is_absolute() else (file.parent, path)
        parts += [_read(one) for one in sorted(base.glob(str(rest))) if one.is_file()]
    return parts


def _crio(files: list[Path], host_root: Path) -> RuntimeConfig:
    """What CRI-O's files say together; a later file replaces what an earlier one says."""
    folders: tuple[str, ...] | None = None
    for file in files:
        name = f"/{file.relative_to(host_root)}"
        try:
            dirs = ((_read(file).get("crio") or {}).get("runtime") or {}).get("cdi_spec_dirs")
            folders = folders if dirs is None else tuple(map(str, dirs))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            return RuntimeConfig(name, "cri-o", wrong=str(error))
    # CRI-O has had CDI since 1.23, and no setting switches it off.
    return RuntimeConfig(name, "cri-o", cdi=True, folders=folders)


def _read(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        # A file that is cut off here is no TOML any more, and is reported as such.
        return tomllib.loads(stream.read(_MOST_BYTES).decode())
