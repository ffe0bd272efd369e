"""NVML's MIG profiles are compared with the product's table field by field, as far as NVML reports them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driver.nvml.api import Code
from driver.nvml.mig import Placement
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.mig_profiles import load_catalogue
from fakegpu.machine.state import MachineState, MemoryStore
from gpuctl.verify.checks.mig_tables import ReportedProfiles, compare, find_mig_tables, table_of
from gpuctl.verify.subject import Subject
from tests.gpuctl.verify.subjects import machine_in, subject_of

TABLE = load_catalogue("h100-80gb")
SMALL, *OTHERS = TABLE.profiles


def reported(**fields: object) -> ReportedProfiles:
    """What an H100 reports, whose smallest profile is in some of its fields otherwise."""
    profiles = (replace(SMALL, **fields), *OTHERS)  # type: ignore[arg-type]  # fields of the profile
    return ReportedProfiles("NVIDIA H100 80GB HBM3", profiles, dict(TABLE.placements))


def test_what_the_table_says_is_no_difference() -> None:
    assert table_of("NVIDIA H100 80GB HBM3") == TABLE
    assert table_of("NVIDIA H100 PCIe") is None
    compared = compare(reported(), TABLE)
    assert (compared.different, compared.usual, compared.without_placements) == ((), (), False)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"slices": 2}, "1g.10gb: slices is 2, 1 in the table"),
        ({"most_instances": 6}, "1g.10gb: most instances is 6, 7 in the table"),
        ({"multiprocessors": 18}, "1g.10gb: multiprocessors is 18, 16 in the table"),
        ({"memory_bytes": 8000 << 20}, "1g.10gb: memory in MiB is 8000, 9984 in the table"),
    ],
)
def test_a_field_that_differs_is_named_with_both_values(fields: dict[str, int], line: str) -> None:
    assert compare(reported(**fields), TABLE).different == (line,)


def test_a_little_memory_more_or_less_is_only_mentioned() -> None:
    compared = compare(reported(memory_bytes=9856 << 20), TABLE)
    assert compared.different == ()
    assert compared.usual == ("1g.10gb: memory in MiB is 9856, 9984 in the table",)


def test_placements_are_compared_only_where_nvml_reports_them() -> None:
    moved = replace(reported(), placements={**TABLE.placements, SMALL.id: (Placement(0, 1),)})
    assert compare(moved, TABLE).different == (
        "1g.10gb: placements are starts: [0], size: 1; starts: [0, 1, 2, 3, 4, 5, 6], size: 1 in the table",
    )
    unseen = replace(reported(), placements=dict.fromkeys(TABLE.placements))
    assert compare(unseen, TABLE).different == ()
    assert compare(unseen, TABLE).without_placements


def test_a_profile_that_one_of_both_lacks_is_named_so_that_a_row_can_be_copied() -> None:
    further = replace(SMALL, id=99, index=0x9, name="1g.12gb")
    seen = ReportedProfiles(
        "H", (further, *OTHERS), {**TABLE.placements, 99: (Placement(0, 1), Placement(1, 1))}
    )
    assert compare(seen, TABLE).different == (
        (
            "1g.12gb (id 99) is not in the table: {name: 1g.12gb, index: 0x9, id: 99, slices: 1, most: 7, "
            "memory_mib: 9984, multiprocessors: 16, engines: [1, 1, 0, 1, 0], starts: [0, 1], size: 1}"
        ),
        "1g.10gb (id 19) is in the table alone",
    )


@pytest.fixture
def a30(tmp_path: Path) -> Subject:
    """A node of four A30."""
    return subject_of(tmp_path, machine_in(tmp_path, "a30-quad"))


def test_differences_of_a_gpu_are_a_warning_that_asks_for_the_report(a30: Subject) -> None:
    machine = FakeMachine.open("a30-quad")
    product = replace(machine.spec.product, mig=load_catalogue("a100-40gb"))
    spec = replace(machine.spec, product=product)
    other = FakeMachine(spec, MemoryStore(MachineState.fresh(spec)))
    found = find_mig_tables(replace(a30, open_nvml=other.nvml))

    assert found.status == "warn"
    assert "send this report" in found.way_out
    assert found.details[0].startswith("each GPU: ")


def test_a_product_without_a_table_is_skipped_and_its_rows_are_reported(a30: Subject) -> None:
    machine = FakeMachine.open("a30-quad")
    spec = replace(machine.spec, product=replace(machine.spec.product, name="NVIDIA A31"))
    other = FakeMachine(spec, MemoryStore(MachineState.fresh(spec)))
    found = find_mig_tables(replace(a30, open_nvml=other.nvml))

    assert found.status == "skipped"
    assert "NVIDIA A31" in found.message
    assert found.details[0].startswith("NVIDIA A31: {name: 1g.6gb, index: 0x0, id: 14, ")


def test_placements_that_nvml_does_not_report_now_are_said_to_be_left_out(a30: Subject) -> None:
    machine = FakeMachine.open(a30.places.nvml)
    machine.fail("gpu_instance_placements", code=Code.NO_PERMISSION)
    found = find_mig_tables(a30)

    assert found.status == "ok"
    assert "placements were not compared" in found.message
