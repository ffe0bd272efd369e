"""Reads the flag ``--nvml``: the real NVML or a fake machine, each imported only when it is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from driver.nvml.api import Nvml


def nvml_from_flag(text: str, driver_root: Path | None = None) -> Nvml:
    """The NVML of ``real``, ``fake:MACHINE`` or ``fake:MACHINE@STATE``.

    ``real`` loads its library from ``driver_root``, or as the dynamic linker finds it where that is
    None; nothing is loaded before ``init``. Raises ConfigError for an unknown word or machine, or
    for a file that cannot be used.
    """
    if text == "real":
        from driver.nvml.real import RealNvml

        return RealNvml(driver_root)
    if text.startswith("fake:"):
        from fakegpu.machine import FakeMachine

        return FakeMachine.open(text).nvml()
    from fakegpu.spec import known_machines

    raise ConfigError(
        f"--nvml {text!r} names no NVML",
        f"use real, fake:MACHINE or fake:MACHINE@STATE, where MACHINE is a file or one of "
        f"{', '.join(known_machines())}",
    )
