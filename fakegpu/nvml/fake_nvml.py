"""A stateful NVML of the machine that a file describes, with the faults that a test injects."""

# ruff: noqa: D102 - the protocols of driver.nvml.api document these methods

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from driver.nvml import api
from driver.nvml.pci_address import PciAddress
from driver.nvml.vgpu import LicensableFeature, VgpuType
from fakegpu.health.calls import FakeEventSet, FakeHealthCalls
from fakegpu.machine.cgroups import without_dead_groups
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import StateStore
from fakegpu.memory.calls import FakeMemoryCalls
from fakegpu.nvml.mig_calls import FakeMigCalls
from fakegpu.nvml.session import FakeSession
from fakegpu.nvml.sharing_calls import FakeSharingCalls
from fakegpu.use.calls import FakeUseCalls


class FakeNvml:
    """NVML of a fake machine as one process sees it, with a session of its own."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self.spec = spec
        self.store = store
        self.session = FakeSession(spec, store)
        self._event_sets: list[FakeEventSet] = []

    def init(self) -> None:
        self.session.begin()

    def shutdown(self) -> None:
        while self._event_sets:
            self._event_sets.pop().close()
        self.session.end()

    def driver_version(self) -> str:
        return self.session.enter("driver_version").driver_version

    def cuda_driver_version(self) -> str:
        return self.session.enter("cuda_driver_version").cuda_driver_version

    def device_count(self) -> int:
        self.session.enter("device_count")
        return len(self.session.listed())

    def device_by_index(self, index: int) -> FakeDevice:
        listed = self.session.listed()
        if index not in range(len(listed)):
            self.session.enter("device_by_index")
            raise api.failure(api.GPU_CALLS["device_by_index"], api.Code.INVALID_ARGUMENT, f"GPU {index}")
        return self._device("device_by_index", listed[index])

    def device_by_pci(self, pci: PciAddress) -> FakeDevice:
        return self._device("device_by_pci", pci)

    def watch_events(self, devices: Sequence[api.NvmlDevice]) -> FakeEventSet:
        self.session.enter("watch_events")
        watched = {}
        for device in devices:
            if not isinstance(device, FakeDevice):
                raise TypeError(f"{device!r} is not a GPU of a fake machine")
            try:
                pci, uuid = device.register_events()
            except (api.SessionLost, api.DriverNotLoaded):
                raise
            except api.NvmlCallFailed:
                # A GPU that cannot be registered does not keep the events of the others from being reported.
                continue
            watched[pci] = uuid
        events = FakeEventSet(self.session, self.store, watched)
        self._event_sets = [*(one for one in self._event_sets if not one.is_closed), events]
        return events

    def _device(self, call: str, pci: PciAddress) -> FakeDevice:
        state, gpu = self.session.gpu_call(call, pci, self.session.number or 0)
        self.session.hold(pci, gpu.minor)
        return FakeDevice(self.session, self.spec, self.spec.slot(pci), state.session)


class FakeDevice(FakeMigCalls, FakeSharingCalls, FakeMemoryCalls, FakeHealthCalls, FakeUseCalls):
    """One GPU of a fake machine, through a handle of one session."""

    def register_events(self) -> tuple[PciAddress, str]:
        """Register the GPU with an event set; returns its address and UUID."""
        _, gpu = self._enter("register_events")
        return self._slot.pci, self._spec.board_uuid(self._slot.pci, gpu.board)

    def uuid(self) -> str:
        _, gpu = self._enter("uuid")
        return self._spec.board_uuid(self._slot.pci, gpu.board)

    def minor(self) -> int:
        return self._enter("minor")[1].minor

    def index(self) -> int:
        self._enter("index")
        return self._session.listed().index(self._slot.pci)

    def pci(self) -> PciAddress:
        self._enter("pci")
        return self._slot.pci

    def name(self) -> str:
        self._enter("name")
        return self._spec.product.name

    def brand(self) -> str | None:
        self._enter("brand")
        return self._spec.product.brand

    def architecture(self) -> str | None:
        self._enter("architecture")
        return self._spec.product.architecture

    def compute_capability(self) -> tuple[int, int]:
        self._enter("compute_capability")
        return self._spec.product.compute_capability

    def memory_bytes(self) -> int:
        self._enter("memory_bytes")
        if self._spec.product.memory_bytes is None:
            raise self._failure("memory_bytes", api.Code.NOT_SUPPORTED)
        return self._spec.product.memory_bytes

    def addressing_mode(self) -> api.AddressingMode | None:
        self._enter("addressing_mode")
        if self._spec.product.addressing_mode is None:
            raise self._failure("addressing_mode", api.Code.NOT_SUPPORTED)
        return self._spec.product.addressing_mode

    def numa_node(self) -> int:
        self._enter("numa_node")
        if self._slot.numa_node is None:
            raise self._failure("numa_node", api.Code.NOT_SUPPORTED)
        return self._slot.numa_node

    def nvlinks(self) -> tuple[api.NvLinkEnd, ...]:
        return tuple(end for end, up in zip(self._slot.links, self.links_up(), strict=True) if up)

    def mig_mode(self) -> api.MigMode:
        _, gpu = self._enter("mig_mode")
        if self._spec.product.mig is None:
            raise self._failure("mig_mode", api.Code.NOT_SUPPORTED)
        return api.MigMode(enabled=gpu.mig.enabled, pending=gpu.mig.pending)

    def fabric(self) -> api.FabricInfo:
        state, _ = self._enter("fabric")
        if self._spec.fabric is None:
            raise self._failure("fabric", api.Code.NOT_SUPPORTED)
        registration = state.fabric.gpus or self._spec.fabric.state
        if registration == "failed":
            raise api.FabricFailed(api.Code.UNKNOWN, str(self._slot.pci))
        return replace(self._spec.fabric, state=registration)

    def module_id(self) -> int:
        self._enter("module_id")
        if self._slot.module_id is None:
            raise self._failure("module_id", api.Code.NOT_SUPPORTED)
        return self._slot.module_id

    def virtualization(self) -> api.Virtualization | None:
        self._enter("virtualization")
        return self._spec.product.virtualization

    def vgpu_types(self) -> tuple[VgpuType, ...]:
        _, gpu = self._enter("vgpu_types")
        if self._spec.product.vgpu is None:
            raise self._failure("vgpu_types", api.Code.NOT_SUPPORTED)
        return self._spec.product.vgpu.supported(mig_enabled=gpu.mig.enabled)

    def licensable_features(self) -> tuple[LicensableFeature, ...]:
        _, gpu = self._enter("licensable_features")
        product, held = self._spec.product.license, gpu.license
        if product is None:
            return ()
        expires = datetime.fromisoformat(held.expires) if held.licensed and held.expires else None
        return (LicensableFeature(product, licensed=held.licensed, enabled=True, expires=expires),)

    def process_ids(self) -> tuple[int, ...]:
        state, gpu = self._enter("process_ids")
        inside = (process.process_id for process in gpu.mig.processes())
        return tuple(sorted({*gpu.process_ids, *inside, *without_dead_groups(state, gpu).memory.process_ids}))
