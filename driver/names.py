"""Makes and reads the names that the driver gives: devices, pools, CDI devices, sockets."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from driver.errors import ConfigError
from driver.model import PciAddress

DRIVER_NAME = "gpu.nvidia.com"
"""The name of NVIDIA's own DRA driver, so that claims and classes written for it work unchanged."""

CDI_VENDOR = "k8s.gpu.nvidia.com"
CDI_CLASS = "claim"

MAX_SOCKET_PATH_BYTES = 107
"""A unix socket path has 108 bytes with its terminating NUL (sys/un.h)."""

_GPU = re.compile(r"^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])$")
_NODE = re.compile(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_MAX_NODE_NAME_CHARACTERS = 253
_UID = re.compile(r"^[0-9A-Za-z][0-9A-Za-z._-]{0,62}$")


def gpu_device_name(pci: PciAddress) -> str:
    """The device name of a whole GPU, ``gpu-0000-8a-00-0``: it survives reboots, unlike a minor."""
    return f"gpu-{pci.domain:04x}-{pci.bus:02x}-{pci.device:02x}-{pci.function:x}"


def parse_gpu_device_name(name: str) -> PciAddress | None:
    """The PCI address in a whole GPU's device name, or None when it is no such name."""
    match = _GPU.match(name)
    if match is None:
        return None
    return PciAddress(*(int(part, 16) for part in match.groups()))


def pool_name(node: str, driver: str = DRIVER_NAME) -> str:
    """The pool of a node: ``<node>/<driver>``.

    Schedulers up to 1.36.3 key counters by pool name alone, so a name that no other driver uses
    keeps theirs and ours apart.
    """
    return f"{node}/{driver}"


def checked_node_name(name: str) -> str:
    """The name itself when a Node object can have it (RFC 1123 subdomain); raises ConfigError."""
    if len(name) > _MAX_NODE_NAME_CHARACTERS or not _NODE.match(name):
        raise ConfigError(
            f"--node-name {name[:_MAX_NODE_NAME_CHARACTERS]!r} is no name of a node",
            "give the name that kubectl get nodes shows",
        )
    return name


def is_safe_uid(uid: str) -> bool:
    """Whether a claim's UID may become part of a file name: it comes from outside and is hostile."""
    return _UID.match(uid) is not None and ".." not in uid


def cdi_device_name(claim_uid: str, device: str, share_id: str | None = None) -> str:
    """The CDI device of one allocated device, unique on the node for ever: it starts with the UID."""
    return "-".join(part for part in (claim_uid, device, share_id) if part)


def cdi_qualified_name(cdi_device: str) -> str:
    """What the kubelet hands to the runtime: ``k8s.gpu.nvidia.com/claim=<device>``."""
    return f"{CDI_VENDOR}/{CDI_CLASS}={cdi_device}"


def cdi_spec_file_name(claim_uid: str) -> str:
    """The file of a claim's transient CDI spec."""
    return f"{CDI_VENDOR}-{CDI_CLASS}_{claim_uid}.json"


def service_socket_name(pod_uid: str = "") -> str:
    """The plugin's DRA socket; with a pod's UID two instances can serve side by side."""
    return f"dra-{pod_uid}.sock" if pod_uid else "dra.sock"


def registration_socket(registry: Path, driver: str, pod_uid: str = "") -> Path:
    """The socket below the kubelet's plugins_registry, shortened with a hash where it must be.

    Raises ConfigError when even the shortest name does not fit.
    """
    if not pod_uid:
        return checked_socket_path(registry / f"{driver}-reg.sock")
    short = base64.urlsafe_b64encode(hashlib.sha256(pod_uid.encode()).digest()[:8])
    both = hashlib.sha256(f"{driver}\0{pod_uid}".encode()).digest()[:16]
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{short.decode().rstrip('=')}-reg.sock",
        f"dra-{base64.urlsafe_b64encode(both).decode().rstrip('=')}-reg.sock",
    )
    for name in names[:-1]:
        if len(bytes(registry / name)) <= MAX_SOCKET_PATH_BYTES:
            return registry / name
    return checked_socket_path(registry / names[-1])


def checked_socket_path(path: Path) -> Path:
    """The path itself when a unix socket can be bound there; raises ConfigError when it is too long."""
    length = len(bytes(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"the socket path {path} has {length} bytes, a unix socket takes {MAX_SOCKET_PATH_BYTES}",
            "use a shorter folder",
        )
    return path
