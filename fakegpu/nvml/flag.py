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

    ``real`` loads the library from the driver root in use, or, without ``roots``, as the dynamic linker finds
    it; nothing is loaded before ``init``. Raises ConfigError for another word, an unknown machine, or a file
    that cannot be used.
    """
    if text == "real":
        from driver.nvml.real import RealNvml

        return RealNvml(roots)
    if text.startswith("fake:"):
        from fakegpu.machine.fake_machine import FakeMachine

        return FakeMachine.open(text).nvml()
    from fakegpu.machine.spec import known_machines

    raise ConfigError(
        f"--nvml {text!r} is not an NVML",
        f"use real, fake:MACHINE or fake:MACHINE@STATE, where MACHINE is a file, an instance type or one of "
        f"{', '.join(known_machines())}",
    )


def fabric_from_flag(text: str, roots: DriverRoots) -> FabricManager:
    """The fabric manager of the machine whose NVML ``nvml_from_flag`` gives; raises ConfigError likewise."""
    if text.startswith("fake:"):
        from fakegpu.machine.fake_machine import FakeMachine

        return FakeMachine.open(text).fabric.manager()
    from driver.fabric.real import RealFabricManager

    return RealFabricManager(roots)


def pretended_cgroups(nvml: Nvml) -> FakeCgroups | None:
    """The pretended control groups of an NVML's machine; None if the node's own control groups count."""
    from fakegpu.machine.cgroups import FakeCgroups
    from fakegpu.nvml.fake_nvml import FakeNvml

    root = nvml.store.read().pretend_cgroups if isinstance(nvml, FakeNvml) else ""
    return FakeCgroups(Path(root)) if root else None


def fake_kernel(nvml: Nvml, sysfs_root: Path) -> FakeKernel:
    """The pretend kernel of the machine whose NVML ``nvml_from_flag`` gave; TypeError for the real NVML.

    ``sysfs_root`` is the folder that ``driver_root.build_sysfs`` has made.
    """
    from fakegpu.machine.fake_machine import FakeMachine
    from fakegpu.nvml.fake_nvml import FakeNvml
    from fakegpu.sysfs.kernel import FakeKernel

    if not isinstance(nvml, FakeNvml):
        raise TypeError("the real NVML has the node's own kernel")
    return FakeKernel(sysfs_root, FakeMachine(nvml.spec, nvml.store))
