"""The paths of the unix sockets of a node's processes, and how long they may be."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from driver.errors import ConfigError

MAX_SOCKET_PATH_BYTES = 107
"""sun_path of a unix socket has 108 bytes including the NUL at its end (sys/un.h)."""


def service_socket_name(pod_uid: str = "") -> str:
    """The name of the plugin's DRA socket; with a pod's UID two instances can serve side by side."""
    return f"dra-{pod_uid}.sock" if pod_uid else "dra.sock"


def memory_socket_name(pod_uid: str = "") -> str:
    """The name of the plugin's socket for gpu-memory-hook. The UID is hashed, since the folder is deep."""
    return f"{hashlib.sha256(pod_uid.encode()).hexdigest()[:12]}.sock" if pod_uid else "dra.sock"


def registration_socket(registry: Path, driver: str, pod_uid: str = "") -> Path:
    """The path of the socket in the kubelet's plugins_registry, shortened with a hash if needed.

    Raises ConfigError if even the shortest name is too long.
    """
    if not pod_uid:
        return checked_socket_path(registry / f"{driver}-reg.sock")
    short = base64.urlsafe_b64encode(hashlib.sha256(pod_uid.encode()).digest()[:8])
    both = hashlib.sha256(f"{driver}\0{pod_uid}".encode()).digest()[:16]
    # The last form leaves out the driver's name: long registry paths have room for nothing else. The kubelet
    # does not look at names, it asks each socket who it is.
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{short.decode().rstrip('=')}-reg.sock",
        f"dra-{base64.urlsafe_b64encode(both).decode().rstrip('=')}-reg.sock",
    )
    for name in names[:-1]:
        if len(bytes(registry / name)) <= MAX_SOCKET_PATH_BYTES:
            return registry / name
    return checked_socket_path(registry / names[-1])


def is_registration_socket(name: str, driver: str) -> bool:
    """Whether a file in the kubelet's plugins_registry is a registration socket with this driver's name."""
    # The shortened form ``dra-….sock`` names no driver and is not found by this.
    return name == f"{driver}-reg.sock" or (name.startswith(f"{driver}-") and name.endswith("-reg.sock"))


def checked_socket_path(path: Path) -> Path:
    """The path itself if a unix socket can be bound there; raises ConfigError if it is too long."""
    # The kernel counts bytes, not characters.
    length = len(bytes(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"the socket path {path} has {length} bytes, a unix socket takes {MAX_SOCKET_PATH_BYTES}",
            "use a shorter folder",
        )
    return path
