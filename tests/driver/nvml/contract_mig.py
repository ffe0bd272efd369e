"""What every NVML must do when MIG changes: each function is a clause, called with a fresh machine's NVML.

tools/hardware/contract/mig.py has what it promises to those who only read.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.driver.nvml.contract_memory import devices_of
from tests.gpus import Code, InstanceNotFound, NotSupported, Nvml, NvmlCallFailed, NvmlDevice, Placement

_NO_SUCH_ID = 99


def _has_mig(device: NvmlDevice) -> bool:
    try:
        device.mig_mode()
    except NotSupported:
        return False
    return True


def _empty_with_mig(nvml: Nvml) -> Iterator[NvmlDevice]:
    """The GPUs that can be cut freely."""
    for device in devices_of(nvml):
        if not _has_mig(device):
            continue
        if not device.mig_mode().enabled and device.mig_without_reset():
            device.set_mig_mode(True)
        if device.mig_mode().enabled and not device.gpu_instances():
            yield device


def refuses_the_mode_without_mig(nvml: Nvml) -> None:
    for device in devices_of(nvml):
        if not _has_mig(device):
            _refused(Code.NOT_SUPPORTED, device.set_mig_mode, True)


def refuses_instances_while_mig_is_off(nvml: Nvml) -> None:
    for device in devices_of(nvml):
        if _has_mig(device) and not device.mig_mode().enabled:
            place = device.gpu_instance_placements(0)[0]
            _refused(Code.NOT_SUPPORTED, device.create_gpu_instance, 0, place)


def makes_and_unmakes_a_partition_of_every_profile(nvml: Nvml) -> None:
    for device in _empty_with_mig(nvml):
        for profile in device.gpu_instance_profiles():
            place = device.gpu_instance_placements(profile.id)[-1]
            made = device.create_gpu_instance(profile.id, place)
            assert (made.profile_id, made.placement) == (profile.id, place)
            assert device.gpu_instances() == (made,)
            assert device.mig_devices() == ()
            whole = device.compute_instance_profiles(made.id)[-1]
            assert whole.slices == profile.slices
            inside = device.create_compute_instance(made.id, whole.id)
            assert device.compute_instances(made.id) == (inside,)
            (mig,) = device.mig_devices()
            assert (mig.gpu_instance_id, mig.compute_instance_id) == (made.id, inside.id)
            assert (mig.parent_uuid, mig.memory_bytes) == (device.uuid(), profile.memory_bytes)
            assert mig.uuid.startswith("MIG-")
            _refused(Code.IN_USE, device.destroy_gpu_instance, made.id)
            device.destroy_compute_instance(made.id, inside.id)
            device.destroy_gpu_instance(made.id)
            assert device.gpu_instances() == ()


def refuses_what_overlaps_and_what_has_no_such_place(nvml: Nvml) -> None:
    for device in _empty_with_mig(nvml):
        first, *_ = device.gpu_instance_profiles()
        place, beside, *_ = device.gpu_instance_placements(first.id)
        made = device.create_gpu_instance(first.id, place)
        _refused(Code.INSUFFICIENT_RESOURCES, device.create_gpu_instance, first.id, place)
        nowhere = Placement(beside.start, beside.size + 1)
        _refused(Code.INVALID_ARGUMENT, device.create_gpu_instance, first.id, nowhere)
        _refused(Code.INVALID_ARGUMENT, device.create_gpu_instance, _NO_SUCH_ID, place)
        _refused(Code.INVALID_ARGUMENT, device.create_compute_instance, made.id, _NO_SUCH_ID)
        assert device.gpu_instances() == (made,)
        device.destroy_gpu_instance(made.id)


def fills_the_gpu_to_its_capacity_and_no_further(nvml: Nvml) -> None:
    for device in _empty_with_mig(nvml):
        first, *_ = device.gpu_instance_profiles()
        made = []
        for place in device.gpu_instance_placements(first.id):
            made.append(device.create_gpu_instance(first.id, place))
            device.create_compute_instance(made[-1].id, 0)
        assert len(made) == first.most_instances
        assert len({mig.uuid for mig in device.mig_devices()}) == len(made)
        for instance in made:
            device.destroy_compute_instance(instance.id, 0)
            device.destroy_gpu_instance(instance.id)


def names_instances_that_are_not_there(nvml: Nvml) -> None:
    for device in _empty_with_mig(nvml):
        for call, further in (
            (device.destroy_gpu_instance, ()),
            (device.compute_instance_profiles, ()),
            (device.compute_instances, ()),
            (device.create_compute_instance, (0,)),
            (device.destroy_compute_instance, (0,)),
        ):
            with pytest.raises(InstanceNotFound, match="GPU instance 5"):
                call(5, *further)


def _refused(code: Code, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(NvmlCallFailed) as caught:
        call(*arguments)
    assert caught.value.code == code


CUTTING_CLAUSES: tuple[Callable[[Nvml], None], ...] = (
    refuses_the_mode_without_mig,
    refuses_instances_while_mig_is_off,
    makes_and_unmakes_a_partition_of_every_profile,
    refuses_what_overlaps_and_what_has_no_such_place,
    fills_the_gpu_to_its_capacity_and_no_further,
    names_instances_that_are_not_there,
)
