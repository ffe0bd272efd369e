"""Reads from sysfs, and from files of the kernel and the driver, what matters to virtual machines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from driver.hardware.functions import PciView
from driver.hardware.pci import read_text
from driver.hardware.pci_view import function_folder, pci_view
from gpuctl.cli.unread import Unread
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.seen import PASSTHROUGH, TO_MACHINES, VGPU, KernelSeen, LicenseClient
from kubeletplugin.claims.journal.entry import Entry

GUEST_CLIENT = "nvidia-gridd"
HOST_MANAGERS = ("nvidia-vgpu-mgr", "nvidia-vgpud")
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "opt/bin")
_TOKENS = "etc/nvidia/ClientConfigToken"
_GRIDD_CONF = "etc/nvidia/gridd.conf"
_SERVER = re.compile(r"^\s*ServerAddress\s*=\s*\S", re.MULTILINE)

_COMMAND_LINE = Path("/proc/cmdline")
_ASKS = re.compile(r"(?:^|\s)(?:intel_iommu=on|amd_iommu=(?:on|force_enable))")
_VFIO_MODULES = re.compile(r"(?:^|/)((?:vfio|iommufd)[a-z0-9_-]*)\.ko", re.MULTILINE)

# Offsets in a function's config space, and the bit that says that it has a list of capabilities
# (linux/pci_regs.h: PCI_STATUS, PCI_STATUS_CAP_LIST, PCI_CAPABILITY_LIST, PCI_CAP_ID_VNDR).
_CAPABILITIES_BIT, _STATUS, _FIRST_CAPABILITY = 0x10, 0x06, 0x34
_VENDOR_SPECIFIC = 0x09
_VGPU_SIGNATURE = b"VF"


def kernel_seen(
    places: Places, roots: Sequence[Path], journal: Mapping[str, Entry | Unread] | Unread
) -> KernelSeen:
    """Read everything; files of the NVIDIA driver are looked for below each of ``roots``."""
    sysfs, view = places.sysfs_root, pci_view(places.sysfs_root)
    given = frozenset(places.offers.split(",")) & frozenset(TO_MACHINES)
    return KernelSeen(
        offers=given | _offered(view, journal),
        pci=view,
        vgpus=frozenset(
            one.pci
            for one in view.functions
            if is_vgpu(_bytes_of(function_folder(sysfs, one.pci) / "config"))
        ),
        iommus=_names(sysfs / "class" / "iommu"),
        asked_iommu=_ASKS.search(read_text(_COMMAND_LINE) or "") is not None,
        loaded=frozenset(name for name in _names(sysfs / "module") if name.startswith(("vfio", "iommufd"))),
        # A container has the host's kernel, so this release is that of the host's modules.
        installed=installed_modules(places.host_root / "lib" / "modules" / os.uname().release),
        without_iommu=_flag(sysfs / "module/vfio/parameters/enable_unsafe_noiommu_mode"),
        unsafe_interrupts=_flag(sysfs / "module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"),
        licenses=license_client(roots),
    )


def is_vgpu(config: bytes) -> bool:
    """Whether the config space of a function says that it is a vGPU: a vendor capability with ``VF``."""
    # The kernel shows only root more than the first 64 bytes, where no capability lies.
    if len(config) <= _FIRST_CAPABILITY or not config[_STATUS] & _CAPABILITIES_BIT:
        return False
    # Each capability begins with its id and the place of the next one; a broken list may be a circle.
    place, walked = config[_FIRST_CAPABILITY], set[int]()
    while place and place not in walked and place + 4 < len(config):
        walked.add(place)
        if config[place] == _VENDOR_SPECIFIC and config[place + 3 : place + 5] == _VGPU_SIGNATURE:
            return True
        place = config[place + 1]
    return False


def installed_modules(folder: Path) -> frozenset[str] | None:
    """The modules of VFIO that the running kernel could load or has built in; None without a modules.dep."""
    # depmod lists in them the files of modules; a compressed module has one more ending, .ko.zst for example.
    texts = [read_text(folder / name) for name in ("modules.dep", "modules.builtin")]
    if texts[0] is None:
        return None
    targets = (line.partition(":")[0] for text in texts for line in (text or "").splitlines())
    # A file may be called vfio-pci.ko; in /sys/module every name has underscores.
    return frozenset(
        found[1].replace("-", "_") for target in targets if (found := _VFIO_MODULES.search(target))
    )


def license_client(roots: Sequence[Path]) -> LicenseClient:
    """The vGPU programs and license configuration below any of these roots."""
    programs = frozenset(
        name
        for name in (GUEST_CLIENT, *HOST_MANAGERS)
        if any((root / folder / name).exists() for root in roots for folder in _PROGRAM_FOLDERS)
    )
    servers: dict[str, None] = {}
    for root in roots:
        servers |= dict.fromkeys(
            f"/{_TOKENS}/{name}" for name in _names(root / _TOKENS) if name.endswith(".tok")
        )
        if _SERVER.search(read_text(root / _GRIDD_CONF) or ""):
            servers[f"ServerAddress in /{_GRIDD_CONF}"] = None
    return LicenseClient(programs, tuple(servers))


def _offered(view: PciView, journal: Mapping[str, Entry | Unread] | Unread) -> frozenset[str]:
    """What goes to virtual machines already: functions that vfio drives, and devices of prepared claims."""
    found = {PASSTHROUGH for one in view.functions if one.driver and "vfio" in one.driver}
    entries: Iterable[Entry | Unread] = () if isinstance(journal, Unread) else journal.values()
    kinds = {device.kind for entry in entries if not isinstance(entry, Unread) for device in entry.devices}
    return frozenset(found | (kinds & {PASSTHROUGH, VGPU}))


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(one.name for one in folder.iterdir()))
    except OSError:
        return ()


def _flag(path: Path) -> bool | None:
    """A boolean parameter of a module, which the kernel shows as Y or N."""
    text = read_text(path)
    return None if text is None else text in ("Y", "1")


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
