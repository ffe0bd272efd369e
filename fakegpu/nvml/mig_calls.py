"""The MIG calls of a fake GPU: they keep the hardware's rules and change the machine's state."""

# ruff: noqa: D102 - the protocol of driver.nvml.mig documents these methods

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from driver.nvml.api import Code
from driver.nvml.mig import (
    ComputeInstance,
    ComputeInstanceProfile,
    GpuInstance,
    GpuInstanceProfile,
    MigActivation,
    MigDevice,
    MigProcess,
    Placement,
)
from fakegpu.machine import mig_state
from fakegpu.machine.mig_profiles import MigCatalogue
from fakegpu.machine.mig_state import ComputeInstanceState, GpuInstanceState, MigState
from fakegpu.machine.state import GpuState
from fakegpu.memory.state import NO_MEMORY
from fakegpu.nvml.session import GpuHandle

MIG_CHANGES = frozenset(
    {
        "set_mig_mode",
        "create_gpu_instance",
        "destroy_gpu_instance",
        "create_compute_instance",
        "destroy_compute_instance",
    }
)
"""The calls that change a GPU."""


class FakeMigCalls(GpuHandle):
    """What FakeDevice answers about MIG."""

    def set_mig_mode(self, enabled: bool) -> MigActivation:
        activation: MigActivation = "done"

        def edit(_: MigCatalogue, gpu: GpuState) -> GpuState:
            nonlocal activation
            mig, activation = self._switched(gpu, enabled=enabled)
            if not mig.enabled:
                return replace(gpu, mig=mig)
            # Neither a compute mode nor memory limits by control group are supported in MIG mode.
            memory = gpu.memory if gpu.mig.enabled else NO_MEMORY
            return replace(gpu, mig=mig, compute_mode="default", memory=memory)

        self._change_mig("set_mig_mode", edit, needs_mode=False)
        return activation

    def mig_without_reset(self) -> bool:
        self._catalogue_and_gpu("mig_without_reset", needs_mode=False)
        return not self._spec.product.mig_needs_reset

    def gpu_instance_profiles(self) -> tuple[GpuInstanceProfile, ...]:
        return self._catalogue_and_gpu("gpu_instance_profiles", needs_mode=False)[0].profiles

    def gpu_instance_placements(self, profile_id: int) -> tuple[Placement, ...]:
        catalogue, _ = self._catalogue_and_gpu("gpu_instance_placements", needs_mode=False)
        if profile_id not in catalogue.placements:
            raise self._refused("gpu_instance_placements", Code.INVALID_ARGUMENT)
        return catalogue.placements[profile_id]

    def mig_devices(self) -> tuple[MigDevice, ...]:
        _, gpu = self._enter("mig_devices")
        catalogue = self._spec.product.mig
        if catalogue is None:
            return ()
        parent = self._spec.board_uuid(self._slot.pci, gpu.board)
        return mig_state.mig_devices(catalogue, gpu.mig, parent)

    def gpu_instances(self) -> tuple[GpuInstance, ...]:
        return tuple(_gpu_instance(gi) for gi in self._catalogue_and_gpu("gpu_instances")[1].mig.instances)

    def create_gpu_instance(self, profile_id: int, placement: Placement) -> GpuInstance:
        made: list[GpuInstanceState] = []

        def edit(catalogue: MigCatalogue, gpu: GpuState) -> GpuState:
            code = mig_state.gpu_instance_refusal(catalogue, gpu.mig, profile_id, placement)
            if code is not None:
                raise self._refused("create_gpu_instance", code)
            mig, new = mig_state.with_gpu_instance(catalogue, gpu.mig, profile_id, placement)
            made.append(new)
            return replace(gpu, mig=mig)

        self._change_mig("create_gpu_instance", edit)
        return _gpu_instance(made[-1])

    def destroy_gpu_instance(self, gpu_instance_id: int) -> None:
        def edit(_: MigCatalogue, gpu: GpuState) -> GpuState:
            if self._instance("destroy_gpu_instance", gpu, gpu_instance_id).compute_instances:
                raise self._refused("destroy_gpu_instance", Code.IN_USE, gpu_instance_id)
            return replace(gpu, mig=gpu.mig.with_instance(gpu_instance_id, None))

        self._change_mig("destroy_gpu_instance", edit)

    def compute_instance_profiles(self, gpu_instance_id: int) -> tuple[ComputeInstanceProfile, ...]:
        catalogue, gpu = self._catalogue_and_gpu("compute_instance_profiles")
        inside = self._instance("compute_instance_profiles", gpu, gpu_instance_id)
        return catalogue.compute_profiles(inside.profile_id)

    def compute_instances(self, gpu_instance_id: int) -> tuple[ComputeInstance, ...]:
        _, gpu = self._catalogue_and_gpu("compute_instances")
        inside = self._instance("compute_instances", gpu, gpu_instance_id)
        return tuple(_compute_instance(ci) for ci in inside.compute_instances)

    def create_compute_instance(self, gpu_instance_id: int, profile_id: int) -> ComputeInstance:
        made: list[ComputeInstanceState] = []

        def edit(catalogue: MigCatalogue, gpu: GpuState) -> GpuState:
            inside = self._instance("create_compute_instance", gpu, gpu_instance_id)
            new = mig_state.new_compute_instance(catalogue, inside, profile_id)
            if isinstance(new, Code):
                raise self._refused("create_compute_instance", new, gpu_instance_id)
            made.append(new)
            return _with_compute_instances(gpu, inside, (*inside.compute_instances, new))

        self._change_mig("create_compute_instance", edit)
        return _compute_instance(made[-1])

    def destroy_compute_instance(self, gpu_instance_id: int, compute_instance_id: int) -> None:
        call = "destroy_compute_instance"

        def edit(_: MigCatalogue, gpu: GpuState) -> GpuState:
            inside = self._instance(call, gpu, gpu_instance_id)
            old = inside.compute_instance(compute_instance_id)
            used = {(one.gpu_instance_id, one.compute_instance_id) for one in gpu.mig_processes()}
            if old is None or (gpu_instance_id, compute_instance_id) in used:
                code = Code.NOT_FOUND if old is None else Code.IN_USE
                raise self._refused(call, code, gpu_instance_id, compute_instance_id)
            return _with_compute_instances(
                gpu, inside, tuple(ci for ci in inside.compute_instances if ci != old)
            )

        self._change_mig(call, edit)

    def mig_processes(self) -> tuple[MigProcess, ...]:
        return self._enter("mig_processes")[1].mig_processes()

    def _catalogue_and_gpu(self, call: str, *, needs_mode: bool = True) -> tuple[MigCatalogue, GpuState]:
        _, gpu = self._enter(call)
        return self._catalogue(call, gpu, needs_mode=needs_mode), gpu

    def _change_mig(
        self, call: str, edit: Callable[[MigCatalogue, GpuState], GpuState], *, needs_mode: bool = True
    ) -> None:
        """Enter a call that changes the GPU and make the change; NOT_SUPPORTED in a vGPU guest."""
        self._catalogue_and_gpu(call, needs_mode=needs_mode)
        if self._spec.product.virtualization == "vgpu":
            raise self._refused(call, Code.NOT_SUPPORTED)
        # The mode is checked again inside the edit: another process may have switched it off meanwhile.
        self._change(call, lambda gpu: edit(self._catalogue(call, gpu, needs_mode=needs_mode), gpu))

    def _catalogue(self, call: str, gpu: GpuState, *, needs_mode: bool) -> MigCatalogue:
        catalogue = self._spec.product.mig
        if catalogue is None or (needs_mode and not gpu.mig.enabled):
            raise self._refused(call, Code.NOT_SUPPORTED)
        return catalogue

    def _instance(self, call: str, gpu: GpuState, gpu_instance_id: int) -> GpuInstanceState:
        instance = gpu.mig.instance(gpu_instance_id)
        if instance is None:
            raise self._refused(call, Code.NOT_FOUND, gpu_instance_id)
        return instance

    def _switched(self, gpu: GpuState, *, enabled: bool) -> tuple[MigState, MigActivation]:
        """The MIG state after setting the mode, and how far the mode has come."""
        mig, busy = gpu.mig, bool(gpu.process_ids or gpu.mig_processes())
        if enabled == mig.enabled:
            return replace(mig, pending=enabled), "done"
        # NVML returns SUCCESS in all these cases; a second status says whether the mode has changed yet.
        if self._spec.product.mig_needs_reset:
            return replace(mig, pending=enabled), "in-use" if busy else "reset-required"
        return (mig, "in-use") if busy else (MigState(enabled, enabled), "done")

    def _refused(
        self,
        call: str,
        code: Code,
        gpu_instance_id: int | None = None,
        compute_instance_id: int | None = None,
    ) -> Exception:
        inside = "" if gpu_instance_id is None else f" GPU instance {gpu_instance_id}"
        inside += "" if compute_instance_id is None else f" compute instance {compute_instance_id}"
        return self._failure(call, code, inside)


def _gpu_instance(state: GpuInstanceState) -> GpuInstance:
    return GpuInstance(state.id, state.profile_id, state.placement)


def _compute_instance(state: ComputeInstanceState) -> ComputeInstance:
    return ComputeInstance(state.id, state.profile_id, state.placement)


def _with_compute_instances(
    gpu: GpuState, inside: GpuInstanceState, compute_instances: tuple[ComputeInstanceState, ...]
) -> GpuState:
    ordered = tuple(sorted(compute_instances, key=lambda ci: ci.id))
    return replace(gpu, mig=gpu.mig.with_instance(inside.id, replace(inside, compute_instances=ordered)))
