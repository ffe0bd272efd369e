"""Compares the MIG profiles that NVML reports with the table of the product that the fake GPUs follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from driver.nvml.api import Code, NotSupported, Nvml, NvmlCallFailed, NvmlDevice
from driver.nvml.deadline import DEADLINE_SECONDS
from driver.nvml.mig import GpuInstanceProfile, Placement
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.mig_profiles import MigCatalogue
from fakegpu.machine.spec import known_machines, load_machine
from gpuctl.doctor.check import Check, Finding, check, counted, ok, skipped, warn
from gpuctl.verify.checks.nvml_answers import ask_for_check, lines_by_gpu
from gpuctl.verify.subject import Subject

MEMORY_TOLERANCE = 0.1
"""Each version of the NVIDIA driver gives profiles a little more or less memory: up to this part of it."""


_MEMORY = "memory in MiB"
_SEND = "send this report with an issue: it corrects the table, which only fake GPUs follow"


@dataclass(frozen=True, slots=True)
class ReportedProfiles:
    """What NVML reports of a GPU's MIG; ``placements`` are by profile id, None where they cannot be asked."""

    product: str
    profiles: tuple[GpuInstanceProfile, ...]
    placements: dict[int, tuple[Placement, ...] | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is otherwise than the table says, and what only differs as it does between drivers, in words."""

    different: tuple[str, ...]
    usual: tuple[str, ...]
    without_placements: bool


@cache
def table_of(product: str) -> MigCatalogue | None:
    """The table of a product, by the name that NVML gives it; None if there is none."""
    for machine in known_machines():
        known = load_machine(machine).product
        if known.name == product and known.mig is not None:
            return known.mig
    return None


def read_profiles(_: Nvml, device: NvmlDevice) -> ReportedProfiles | None:
    """The MIG profiles of a GPU with their placements; None without MIG."""
    try:
        device.mig_mode()
        profiles = device.gpu_instance_profiles()
    except NotSupported:
        return None
    return ReportedProfiles(
        device.name(), profiles, {profile.id: _placements(device, profile.id) for profile in profiles}
    )


def _placements(device: NvmlDevice, profile_id: int) -> tuple[Placement, ...] | None:
    try:
        return device.gpu_instance_placements(profile_id)
    except NvmlCallFailed as error:
        # Some drivers know them in MIG mode alone, and NVML tells them to root alone.
        if isinstance(error, NotSupported) or error.code == Code.NO_PERMISSION:
            return None
        raise


def compare(reported: ReportedProfiles, table: MigCatalogue) -> Comparison:
    """Compare NVML's profiles with a table."""
    ours = {profile.id: profile for profile in table.profiles}
    theirs = {profile.id: profile for profile in reported.profiles}
    different = [
        f"{profile.name} (id {number}) is not in the table: {_in_words(profile, reported.placements[number])}"
        for number, profile in theirs.items()
        if number not in ours
    ]
    different += [
        f"{profile.name} (id {number}) is in the table alone"
        for number, profile in ours.items()
        if number not in theirs
    ]
    usual: list[str] = []
    for number in sorted(ours.keys() & theirs.keys()):
        for field, table_says, nvml_says in _fields(theirs[number], ours[number]):
            line = f"{theirs[number].name}: {field} is {nvml_says}, {table_says} in the table"
            (usual if field == _MEMORY and _is_close(nvml_says, table_says) else different).append(line)
        places, in_table = reported.placements[number], _places_in_words(table.placements[number])
        if places is not None and _places_in_words(places) != in_table:
            different.append(
                f"{theirs[number].name}: placements are {_places_in_words(places)}; {in_table} in the table"
            )
    return Comparison(tuple(different), tuple(usual), None in reported.placements.values())


def _fields(theirs: GpuInstanceProfile, ours: GpuInstanceProfile) -> Iterator[tuple[str, object, object]]:
    """The fields in which two profiles differ, with our value and theirs."""
    for field, one, other in (
        ("the name", ours.name, theirs.name),
        ("the index", ours.index, theirs.index),
        ("slices", ours.slices, theirs.slices),
        ("most instances", ours.most_instances, theirs.most_instances),
        (_MEMORY, ours.memory_bytes >> 20, theirs.memory_bytes >> 20),
        ("multiprocessors", ours.multiprocessors, theirs.multiprocessors),
        ("engines", ours.engines, theirs.engines),
    ):
        if one != other:
            yield field, one, other


def _is_close(one: object, other: object) -> bool:
    return isinstance(one, int) and isinstance(other, int) and abs(one - other) <= MEMORY_TOLERANCE * other


def _in_words(profile: GpuInstanceProfile, places: tuple[Placement, ...] | None) -> str:
    """A profile as a row of a table in fakegpu/mig_profiles/."""
    one = profile.engines
    engines = f"[{one.copy}, {one.decoders}, {one.encoders}, {one.jpeg}, {one.ofa}]"
    row = (
        f"{{name: {profile.name}, index: {profile.index:#x}, id: {profile.id}, slices: {profile.slices}, "
        f"most: {profile.most_instances}, memory_mib: {profile.memory_bytes >> 20}, "
        f"multiprocessors: {profile.multiprocessors}, engines: {engines}"
    )
    return f"{row}, {_places_in_words(places)}}}" if places else f"{row}}}"


def _places_in_words(places: tuple[Placement, ...]) -> str:
    starts = sorted(place.start for place in places)
    sizes = sorted({place.size for place in places})
    return f"starts: {starts}, size: {', '.join(map(str, sizes))}"


def find_mig_tables(subject: Subject, deadline_seconds: float = DEADLINE_SECONDS) -> Finding:
    """What the check of the MIG tables finds if each call may take so long."""
    found = ask_for_check(subject, read_profiles, deadline_seconds)
    failed = [f"{pci}: {one.what}" for pci, one in found.items() if isinstance(one, NvmlCallFailed)]
    reported = {pci: one for pci, one in found.items() if isinstance(one, ReportedProfiles)}
    if not reported and failed:
        return warn("no GPU reports its MIG profiles", "see what the other checks say of these GPUs", failed)
    if not reported:
        return skipped("no GPU reports MIG profiles: none has MIG, or NVML reports them in MIG mode alone")
    known: dict[PciAddress, Comparison] = {}
    rows: dict[str, None] = {}
    for pci, one in reported.items():
        table = table_of(one.product)
        if table is None:
            rows |= dict.fromkeys(f"{one.product}: {row}" for row in _rows(one))
        else:
            known[pci] = compare(one, table)
    if not known:
        products = sorted({one.product for one in reported.values()})
        message = f"there is no table of MIG profiles for {', '.join(products)}"
        return Finding("skipped", message, _SEND, (*rows, *failed))
    return _judged(known, [*rows, *failed], len(found))


def _judged(known: dict[PciAddress, Comparison], further: list[str], all_gpus: int) -> Finding:
    """What follows from the comparisons; ``further`` are lines about GPUs without a table or an answer."""
    words = {pci: "; ".join(one.different) for pci, one in known.items()}
    different = lines_by_gpu({pci: line for pci, line in words.items() if line}, all_gpus)
    words = {pci: "; ".join(one.usual) for pci, one in known.items()}
    usual = lines_by_gpu({pci: line for pci, line in words.items() if line}, all_gpus)
    gpus, but = counted(len(known), "GPU"), ""
    if any(one.without_placements for one in known.values()):
        but = "; placements were not compared, since NVML does not report them now (MIG is off, or no root)"
    if different:
        message = f"the MIG profiles of {gpus} differ from the table of the product{but}"
        return warn(message, _SEND, [*different, *usual, *further])
    return ok(f"the MIG profiles of {gpus} are those of the table{but}", [*usual, *further])


def _rows(reported: ReportedProfiles) -> Iterator[str]:
    """The profiles as rows of a table."""
    for profile in reported.profiles:
        yield _in_words(profile, reported.placements[profile.id])


MIG_TABLES: Check[Subject] = check(
    "mig-tables",
    "whether NVML reports the MIG profiles and placements of the product's table, which fake GPUs follow",
    "never; warns about each difference, except for a little memory",
)(find_mig_tables)
"""The check of the MIG tables."""
