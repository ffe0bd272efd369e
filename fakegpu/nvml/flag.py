"""Reads the flag ``--nvml``: the real NVML or a fake machine, each imported only when it is chosen.

A fake machine has a pretend kernel and a pretend fabric manager, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.nvml.api import Nvml
from driver.roots.driver_roots import DriverRoots

if TYPE_CHECKING:
    from driver.fabric.api import FabricManager
    from fakegpu.machine.cgroups import FakeCgroups
    from fakegpu.sysfs.kernel import FakeKernel


def nvml_from_flag(text: str, roots: DriverRoots | None = None) -> Nvml:
    """The NVML of ``real``, ``fake:MACHINE`` or ``fake:MACHINE@STATE``.

    ``real`` loads its library from the driver root that counts, or as the dynamic linker finds it without
    ``roots``; nothing is loaded before ``init``. Raises ConfigError for an unknown word or machine, or
    for a file that cannot be used.
    """
    if text == "real":
        from driver.nvml.real import RealNvml

        return RealNvml(roots)
    if text.startswith("fake:"):
        from fakegpu.machine.fake_machine import FakeMachine

        return FakeMachine.open(text).nvml()
    from fakegpu.machine.spec import known_machines

    raise ConfigError(
        f"--nvml {text!r} names no NVML",
        f"use real, fake:MACHINE or fake:MACHINE@STATE, where MACHINE is a file or one of "
        f"{', '.join(known_machines())}",
    )


def fabric_from_flag(text: str, roots: DriverRoots) -> FabricManager:
    """The fabric manager that belongs to what ``nvml_from_flag`` gives; raises ConfigError as that does."""
    if text.startswith("fake:"):
        from fakegpu.machine.fake_machine import FakeMachine

        return FakeMachine.open(text).fabric.manager()
    from driver.fabric.real import RealFabricManager

    return RealFabricManager(roots)


def pretended_cgroups(nvml: Nvml) -> FakeCgroups | None:
    """The pretended control groups of the machine that an NVML looks at; None where the node's own count."""
    from fakegpu.machine.cgroups import FakeCgroups
    from fakegpu.nvml.fake_nvml import FakeNvml

    root = nvml.store.read().pretend_cgroups if isinstance(nvml, FakeNvml) else ""
    return FakeCgroups(Path(root)) if root else None


def fake_kernel(nvml: Nvml, sysfs_root: Path) -> FakeKernel:
    """The pretend kernel of the machine that an NVML of ``nvml_from_flag`` looks at.

    ``sysfs_root`` is what ``driver_root.build_sysfs`` has laid. Raises TypeError for the real NVML.
    """
    from fakegpu.machine.fake_machine import FakeMachine
    from fakegpu.nvml.fake_nvml import FakeNvml
    from fakegpu.sysfs.kernel import FakeKernel

    if not isinstance(nvml, FakeNvml):
        raise TypeError("the real NVML has the node's own kernel")
    return FakeKernel(sysfs_root, FakeMachine(nvml.spec, nvml.store))
