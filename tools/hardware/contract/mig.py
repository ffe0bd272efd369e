"""What NVML promises about MIG to those who only read."""

from __future__ import annotations

from functools import partial

from driver.nvml.api import Code, NotSupported, NvmlDevice
from tools.hardware.contract.clause import (
    NothingToCheck,
    answers_of,
    expect,
    expect_failure,
    gpu_clause,
    has_mig,
    is_in_mig_mode,
)

_NO_MIG = "no GPU has MIG"


@gpu_clause(
    "GPUs without MIG",
    "A GPU without MIG refuses questions about instances, and has no MIG devices.",
)
def _has_no_instances_without_mig(device: NvmlDevice) -> None:
    if has_mig(device):
        raise NothingToCheck("each GPU has MIG")
    # A GPU that lists no processes at all does not list those of MIG.
    for name, found in answers_of(device, "mig_devices", "mig_processes").items():
        expect(found == (), f"it has no MIG, and {name} answers {found}")
    for name, call in (
        ("gpu_instance_profiles", device.gpu_instance_profiles),
        ("gpu_instance_placements", partial(device.gpu_instance_placements, 0)),
        ("gpu_instances", device.gpu_instances),
    ):
        # Of users who are not root NVML may not even say that.
        expected = NotSupported, Code.INVALID_ARGUMENT, Code.NO_PERMISSION
        expect_failure(f"{name} without MIG", call, *expected)


@gpu_clause("MIG profiles", "A GPU with MIG has profiles, each with its own id, name and placements.")
def _offers_profiles_with_placements(device: NvmlDevice) -> None:
    if not has_mig(device):
        raise NothingToCheck(_NO_MIG)
    try:
        profiles = device.gpu_instance_profiles()
    except NotSupported as error:
        # So it is in a vGPU guest, and on a workstation's board that drives a display.
        raise NothingToCheck(f"it has a MIG mode and no profiles: {error.what}") from error
    indexes = [profile.index for profile in profiles]
    expect(indexes == sorted(set(indexes)), f"the indexes of its profiles are {indexes}")
    for what, values in (
        ("id", [str(profile.id) for profile in profiles]),
        ("name", [profile.name for profile in profiles]),
    ):
        expect(len(set(values)) == len(values), f"two of its profiles have one {what}: {', '.join(values)}")
    for profile in profiles:
        ending = f"gb{''.join(profile.attributes)}"
        expect(profile.name.endswith(ending), f"profile {profile.id} is {profile.name}, without {ending}")
        try:
            places = device.gpu_instance_placements(profile.id)
        except NotSupported as error:
            # Older drivers know the placements only in MIG mode.
            expect(is_in_mig_mode(device) is False, f"it is in MIG mode, and {error.what}")
            raise NothingToCheck("placements are known in MIG mode alone") from error
        most = profile.most_instances
        expect(0 < most <= len(places), f"{most} instances of {profile.name} have the placements {places}")
        expect(len({place.size for place in places}) == 1, f"{profile.name} has several sizes: {places}")


@gpu_clause("MIG off", "A GPU whose MIG mode is off has no instances.")
def _has_no_instances_while_mig_is_off(device: NvmlDevice) -> None:
    if not has_mig(device):
        raise NothingToCheck(_NO_MIG)
    if is_in_mig_mode(device):
        raise NothingToCheck("each GPU with MIG is in MIG mode")
    expect(device.mig_devices() == (), f"MIG is off, and it has MIG devices: {device.mig_devices()}")
    try:
        instances = device.gpu_instances()
    except NotSupported:
        return
    expect(not instances, f"MIG is off, and it has GPU instances: {instances}")


@gpu_clause("MIG devices", "Each MIG device of a GPU lies in one of its GPU instances.")
def _places_mig_devices_in_instances(device: NvmlDevice) -> None:
    if not is_in_mig_mode(device):
        raise NothingToCheck("no GPU is in MIG mode")
    before, found, after = device.mig_devices(), device.gpu_instances(), device.mig_devices()
    if before != after:
        raise NothingToCheck("its MIG devices change just now")
    inside = {one.id for one in found}
    uuid = device.uuid()
    for mig in after:
        expect(mig.gpu_instance_id in inside, f"{mig.uuid} is in none of the GPU instances {sorted(inside)}")
        expect(mig.parent_uuid == uuid, f"{mig.uuid} belongs to {mig.parent_uuid}, and not to {uuid}")
        expect(mig.uuid.startswith("MIG-"), f"the UUID of a MIG device is {mig.uuid!r}")


MIG_CLAUSES = (
    _has_no_instances_without_mig,
    _offers_profiles_with_placements,
    _has_no_instances_while_mig_is_off,
    _places_mig_devices_in_instances,
)
"""The clauses about MIG."""
