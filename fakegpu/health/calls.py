"""What a fake GPU says of its health when it is asked."""

# ruff: noqa: D102 - the protocol of driver.nvml.health.calls documents the calls

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.nvml.api import GPU_CALLS, Code, failure
from driver.nvml.health.calls import NvLinkState

if TYPE_CHECKING:
    from collections.abc import Collection

    from driver.nvml.health.calls import EccErrors, FabricHealth, RecoveryAction, RemappedRows
    from fakegpu.health.state import GpuHealth
    from fakegpu.machine.spec import MachineSpec, Slot
    from fakegpu.machine.state import GpuState, MachineState
    from fakegpu.nvml.session import FakeSession

FIRST_WITH_STRUCTURED_EVENTS = 615
"""The release of the NVIDIA driver that tells of severity and containment, and of unrepairable memory."""

_FIRST_WITH_RECOVERY_ACTION = 570
_RETIRES_PAGES = ("Volta", "Turing")
_TELLS_UNREPAIRABLE = ("Hopper", "Blackwell")


def release(driver_version: str) -> int:
    """The number in front of an NVIDIA driver's version."""
    return int(driver_version.partition(".")[0])


class FakeHealthCalls:
    """What FakeDevice answers about health."""

    _session: FakeSession
    _spec: MachineSpec
    _slot: Slot
    _number: int

    def recovery_action(self) -> RecoveryAction | None:
        state, _ = self._asked("recovery_action")
        if release(state.driver_version) < _FIRST_WITH_RECOVERY_ACTION:
            raise self._cannot("recovery_action", Code.NOT_SUPPORTED)
        return self._health("recovery_action").recovery_action

    def remapped_rows(self) -> RemappedRows:
        health = self._health("remapped_rows")
        if self._spec.product.architecture in _RETIRES_PAGES:
            raise self._cannot("remapped_rows", Code.NOT_SUPPORTED)
        return health.rows

    def retired_pages_pending(self) -> bool:
        return self._health("retired_pages_pending", of=_RETIRES_PAGES).page_pending

    def unrepairable_memory(self) -> bool:
        health = self._health(
            "unrepairable_memory", of=_TELLS_UNREPAIRABLE, since=FIRST_WITH_STRUCTURED_EVENTS
        )
        return health.unrepairable

    def ecc_errors(self) -> EccErrors:
        return self._health("ecc_errors").ecc

    def fabric_health(self) -> FabricHealth:
        health = self._health("fabric_health")
        if self._spec.fabric is None or self._spec.fabric.state != "completed":
            raise self._cannot("fabric_health", Code.NOT_SUPPORTED)
        return health.fabric

    def nvlink_states(self) -> tuple[NvLinkState, ...]:
        state, gpu = self._asked("nvlink_states")
        if not self._slot.links:
            raise self._cannot("nvlink_states", Code.NOT_SUPPORTED)
        return self.links_of(state, gpu)

    def links_of(self, state: MachineState, gpu: GpuState) -> tuple[NvLinkState, ...]:
        """All links of the slot: up but for those that MIG mode cuts, and that a test has taken down."""
        differing = {link.link: link for link in gpu.health.links}
        links = range(len(self._slot.links))
        found = [differing.get(link, NvLinkState(link, active=True)) for link in links]
        cut = self._links_cut_by_mig(state, gpu)
        return tuple(replace(one, active=False) if one.link in cut else one for one in found)

    def _links_cut_by_mig(self, state: MachineState, gpu: GpuState) -> frozenset[int]:
        links = self._slot.links
        if not self._spec.links_end_with_mig:
            return frozenset()
        if gpu.mig.enabled:
            return frozenset(range(len(links)))
        cut = {pci for pci, other in state.gpus.items() if other.mig.enabled}
        return frozenset(link for link, end in enumerate(links) if end.remote in cut)

    def _health(self, call: str, of: Collection[str] = (), since: int = 0) -> GpuHealth:
        """The health, where GPU and driver tell of it: no vGPU guest is told of the board."""
        state, gpu = self._asked(call)
        product = self._spec.product
        if release(state.driver_version) < since:
            raise self._cannot(call, Code.FUNCTION_NOT_FOUND)
        if product.virtualization == "vgpu" or (of and product.architecture not in of):
            raise self._cannot(call, Code.NOT_SUPPORTED)
        return gpu.health

    def _asked(self, call: str) -> tuple[MachineState, GpuState]:
        return self._session.gpu_call(call, self._slot.pci, self._number)

    def _cannot(self, call: str, code: Code) -> Exception:
        return failure(GPU_CALLS[call], code, str(self._slot.pci))
