"""What NVML promises about what each GPU is, how it is, and how it is used."""

from __future__ import annotations

from collections import Counter
from datetime import UTC

from driver.nvml.api import NotFound, NotSupported, NvLinkEnd, Nvml, NvmlDevice
from driver.nvml.pci_address import PciAddress
from driver.nvml.use.calls import MemoryUse, Utilisation
from tools.hardware.calls import READS
from tools.hardware.contract.clause import (
    NothingToCheck,
    answers_of,
    ask_gpus,
    clause,
    expect,
    expect_failure,
    gpu_clause,
    is_in_mig_mode,
)

_ALWAYS_KNOWN = ("name", "architecture", "compute_capability")
_HEALTH = (
    *("recovery_action", "remapped_rows", "retired_pages_pending", "unrepairable_memory", "ecc_errors"),
    "fabric_health",
)
_USE = (
    *("utilisation", "power_milliwatts", "power_limit_milliwatts", "temperature_celsius", "processes"),
    "busy_processes",
)
# Without the place in the fabric: that call fails if the fabric was set up with an error.
_DESCRIPTION = tuple(name for name in READS if name not in {"fabric", *_HEALTH, *_USE})
# NVML_GRID_LICENSE_FEATURE_MAX_COUNT.
_MOST_FEATURES = 3
# No board draws more than 20 kW, and none runs that hot or cold.
_MOST_MILLIWATTS, _COLDEST_CELSIUS, _HOTTEST_CELSIUS = 20_000_000, -60, 200
# No GPU has more than 15 GPU instances, nor an instance more than 8 compute instances.
_NO_SUCH_INSTANCE = 99
_TRIES = 3


@gpu_clause(
    "description",
    "Each question about what a GPU is gets an answer, or NOT_SUPPORTED; its name, architecture and "
    "compute capability are always known.",
)
def _describes_itself(device: NvmlDevice) -> None:
    answers = answers_of(device, *_DESCRIPTION)
    missing = [name for name in _ALWAYS_KNOWN if name not in answers]
    expect(not missing, f"it does not answer {', '.join(missing)}")
    expect(bool(device.name()), "its name is empty")


@gpu_clause("health", "Each question about the health of a GPU gets an answer, or NOT_SUPPORTED.")
def _reports_its_health(device: NvmlDevice) -> None:
    answers_of(device, *_HEALTH)


@gpu_clause("use", "Each question about the use of a GPU gets a possible answer, or NOT_SUPPORTED.")
def _reports_its_use(device: NvmlDevice) -> None:
    answers = answers_of(device, *_USE)
    use = answers.get("utilisation")
    if isinstance(use, Utilisation):
        expect(0 <= use.compute <= 1 and 0 <= use.memory <= 1, f"it is busy beyond measure: {use}")
    for name in ("power_milliwatts", "power_limit_milliwatts"):
        power = answers.get(name, 0)
        expect(isinstance(power, int) and 0 <= power <= _MOST_MILLIWATTS, f"{name} is {power}")
    celsius = answers.get("temperature_celsius", 0)
    fits = isinstance(celsius, int) and _COLDEST_CELSIUS <= celsius <= _HOTTEST_CELSIUS
    expect(fits, f"temperature_celsius is {celsius}")


@gpu_clause("vGPU types", "Only a GPU of a vGPU host has vGPU types, each with its own id and name.")
def _offers_vgpus_on_a_host_alone(device: NvmlDevice) -> None:
    types = answers_of(device, "vgpu_types").get("vgpu_types", ())
    if device.virtualization() != "host-vgpu":
        expect(not types, f"it is no vGPU host, and offers vGPU types: {types}")
        return
    found = device.vgpu_types()
    ids = [one.id for one in found]
    expect(ids == sorted(set(ids)), f"the ids of its vGPU types are {ids}")
    expect(len({one.name for one in found}) == len(found), f"two of its vGPU types have one name: {found}")
    empty = [one for one in found if one.most < 1 or one.memory_bytes < 1]
    expect(not empty, f"none of these vGPU types can be made: {empty}")


@gpu_clause(
    "licenses",
    "A GPU has at most three features that take a license, and only a license that is there expires.",
)
def _reports_possible_licenses(device: NvmlDevice) -> None:
    try:
        features = device.licensable_features()
    except NotSupported as error:
        raise NothingToCheck(error.what) from error
    expect(len(features) <= _MOST_FEATURES, f"it has {len(features)} features that take a license")
    for feature in features:
        expect(bool(feature.product) or not feature.licensed, f"a license is for no product: {feature}")
        if feature.expires is not None:
            expect(feature.licensed, f"a license that is not there expires: {feature}")
            expect(feature.expires.tzinfo is UTC, f"a license expires in no time zone: {feature}")


@clause("NVLinks", "Two GPUs report the same number of NVLinks to each other.")
def _links_from_both_ends(nvml: Nvml) -> None:
    def ask(device: NvmlDevice) -> tuple[PciAddress, tuple[NvLinkEnd, ...]]:
        try:
            ends = device.nvlinks()
        except NotSupported as error:
            raise NothingToCheck(error.what) from error
        # The links of a GPU in MIG mode may be down, or not be reported, at either end.
        if is_in_mig_mode(device):
            raise NothingToCheck("a GPU in MIG mode has no links")
        return device.pci(), ends

    asked = ask_gpus(nvml, ask)
    known = dict(asked.answers.values())
    counts = Counter((pci, end.remote) for pci, ends in known.items() for end in ends if end.remote in known)
    if not counts:
        raise NothingToCheck("no GPU has an active NVLink to another GPU that NVML lists")
    for (here, there), count in counts.items():
        back = counts[there, here]
        expect(back == count, f"{count} NVLinks lead from {here} to {there}, and {back} back")


@gpu_clause(
    "memory",
    "A GPU has the same memory in both calls, and no more of it is used and reserved than there is.",
)
def _uses_no_more_memory_than_there_is(device: NvmlDevice) -> None:
    use = answers_of(device, "memory_use").get("memory_use")
    if not isinstance(use, MemoryUse):
        raise NothingToCheck("no GPU reports the use of its memory")
    total = device.memory_bytes()
    expect(use.total_bytes == total, f"its memory is {use.total_bytes} bytes in one call, {total} in another")
    holds = use.used_bytes >= 0 and use.reserved_bytes >= 0
    expect(holds and use.used_bytes + use.reserved_bytes <= total, f"its use of memory is impossible: {use}")


@gpu_clause(
    "memory of partitions",
    "Each MIG device has a part of its GPU's memory, and an instance that is not there has none.",
)
def _reports_the_memory_of_partitions_alone(device: NvmlDevice) -> None:
    for mig in device.mig_devices():
        use = device.partition_memory_use(mig.gpu_instance_id, mig.compute_instance_id)
        holds = 0 <= use.used_bytes <= use.total_bytes <= device.memory_bytes()
        expect(holds, f"the use of memory of {mig.uuid} is impossible: {use}")
    expect_failure(
        "partition_memory_use of an instance that is not there",
        lambda: device.partition_memory_use(_NO_SUCH_INSTANCE, _NO_SUCH_INSTANCE),
        NotFound,
    )


@gpu_clause("processes", "Both calls list the same processes of a GPU.")
def _lists_the_same_processes_in_each_way(device: NvmlDevice) -> None:
    for _ in range(_TRIES):
        before = answers_of(device, "process_ids").get("process_ids")
        if before is None:
            raise NothingToCheck("no GPU lists its processes to this user")
        found, after = device.processes(), device.process_ids()
        # Processes come and go on a GPU that is used.
        if before == after:
            pids = [one.pid for one in found]
            expect(pids == sorted(pids), f"its processes are not sorted: {pids}")
            expect(
                tuple(sorted(set(pids))) == after, f"its processes are {pids} in one call, {after} in another"
            )
            return
    raise NothingToCheck("its processes change too often")


GPU_CLAUSES = (
    _describes_itself,
    _reports_its_health,
    _reports_its_use,
    _offers_vgpus_on_a_host_alone,
    _reports_possible_licenses,
    _links_from_both_ends,
    _uses_no_more_memory_than_there_is,
    _reports_the_memory_of_partitions_alone,
    _lists_the_same_processes_in_each_way,
)
"""The clauses about what a GPU is, how it is and how it is used."""
