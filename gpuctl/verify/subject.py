"""What is verified: a node with its GPUs, and how its NVML is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driver.hardware.gpu import Gpu
from driver.nvml.api import Nvml
from gpuctl.doctor.check import require
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.seen import NodeSeen


@dataclass(frozen=True, slots=True)
class Subject:
    """A node that is verified, as it was read once at the start.

    ``open_nvml`` returns an NVML without a session each time that it is called. Its calls may hang: whoever
    uses it has to give up after some time.
    """

    places: Places
    seen: NodeSeen
    open_nvml: Callable[[], Nvml]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that NVML reports; a check that asks for them is skipped if NVML could not be read."""
        return require(self.seen.inventory).gpus

    @property
    def is_fake(self) -> bool:
        """Whether the GPUs are those of a fake machine."""
        return self.places.nvml.startswith("fake:")
