"""The file in which a fake machine's kernel says which of its modules take which functions for vfio."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu.machine.fake_machine import FakeMachine


def build_module_aliases(host_root: Path, machine: FakeMachine) -> Path:
    """Write ``modules.alias`` of this machine's kernel release below a host's root; returns the file."""
    file = host_root / "lib" / "modules" / os.uname().release / "modules.alias"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = ["# Aliases extracted from modules themselves.", "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci"]
    lines += [
        f"alias vfio_pci:v000010DEd{device_id:08X}sv*sd*bc*sc*i* {name.replace('-', '_')}"
        for name, device_ids in machine.spec.iommu.variant_drivers
        for device_id in device_ids
    ]
    file.write_text("\n".join(lines) + "\n", encoding="ascii")
    return file
