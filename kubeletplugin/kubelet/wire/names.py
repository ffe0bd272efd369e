"""The names that a claim has on the node: CDI vendor, class, devices and files. Also checks claim UIDs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from driver.devices.names import DRIVER_NAME

CDI_CLASS = "claim"

_DIGITS = 16
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,62}", re.ASCII)


def is_safe_uid(uid: str) -> bool:
    """Whether a claim's UID may become part of a file name; UIDs come from outside and are not trusted."""
    # Neither slashes nor "..", so that the name cannot leave its folder.
    return _UID.fullmatch(uid) is not None and ".." not in uid


def cdi_device_name(claim_uid: str, device: str, share_id: str | None = None) -> str:
    """The CDI device of one allocated device. It starts with the claim's UID, so it is never used again."""
    return "-".join(part for part in (claim_uid, device, share_id) if part)


def cdi_vendor(driver: str = DRIVER_NAME) -> str:
    """The vendor of a DRA driver's CDI devices. A claim may have devices of several drivers of this node."""
    return f"k8s.{driver}"


def cdi_qualified_name(cdi_device: str, driver: str = DRIVER_NAME) -> str:
    """The name that the kubelet passes to the container runtime: ``k8s.gpu.nvidia.com/claim=<device>``."""
    return f"{cdi_vendor(driver)}/{CDI_CLASS}={cdi_device}"


def cdi_spec_file_name(claim_uid: str, driver: str = DRIVER_NAME) -> str:
    """The file of a claim's CDI spec; CDI's convention for one that comes and goes is ``vendor-class_id``."""
    return f"{cdi_vendor(driver)}-{CDI_CLASS}_{claim_uid}.json"


def former_cdi_spec_file_name(claim_uid: str) -> str:
    """The file of the CDI spec that NVIDIA's own driver wrote for a claim, with the same device names."""
    return f"{cdi_vendor()}-{CDI_CLASS}_{claim_uid}.yaml"


def claim_of_cdi_spec(file_name: str, driver: str = DRIVER_NAME) -> str | None:
    """The UID of the claim that a CDI spec of this name belongs to; None for any other file."""
    uid = file_name.removeprefix(f"{cdi_vendor(driver)}-{CDI_CLASS}_").removesuffix(".json")
    return uid if is_safe_uid(uid) and cdi_spec_file_name(uid, driver) == file_name else None


def metadata_file_name(claim_uid: str, request: str) -> str:
    """The file with the attributes that containers read of a request's devices; a request is a DNS label."""
    return f"{claim_uid}_{request}.json"


def claim_of_metadata_file(file_name: str) -> str | None:
    """The UID of the claim of a metadata file; None for any other file."""
    uid, _, request = file_name.removesuffix(".json").rpartition("_")
    return uid if is_safe_uid(uid) and metadata_file_name(uid, request) == file_name else None


def hook_folder_key(digests: Sequence[str]) -> str:
    """The end of the name of a folder with copies of hooks, made from the SHA-256 of its programs.

    ``digests`` are in hexadecimal, that of nvidia-cdi-hook before that of gpu-memory-hook.
    """
    alone = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return alone[:_DIGITS]
