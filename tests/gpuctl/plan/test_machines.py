"""``gpuctl machines`` says what the machines are that other commands take, and checks a file of one's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakegpu.machine.spec import known_machines, load_machine
from gpuctl.__main__ import commands
from tests.gpuctl.documents import read_document

ROOT = Path(__file__).resolve().parents[3]
FIELD = r"\w+\.(?:text|number|flag|choice|texts|triples|address|child|items)\(\s*\"(\w+)\""
"""Where the loader takes a field out of the file."""
CUT = """
description: "Two A30, one of them in MIG mode"
driver_version: "580.95.05"
cuda_driver_version: "13.0"
product:
  name: NVIDIA A30
  device_id: 0x20b7
  brand: Nvidia
  architecture: Ampere
  compute_capability: "8.0"
  memory_mib: 24576
  mig: a30-24gb
gpus:
  - {pci: "0000:17:00.0", minor: 0, pcie_root: "pci0000:16"}
  - {pci: "0000:65:00.0", minor: 1, pcie_root: "pci0000:64", mig_enabled: true}
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["machines", *arguments])


def test_every_shipped_machine_has_a_line_that_says_what_it_is() -> None:
    lines = run().output.splitlines()

    assert lines[0].split() == ["NAME", "GPUS", "PRODUCT", "MEMORY", "MIG", "NVLINKS", "WHAT-IT-IS"]
    assert [line.split()[0] for line in lines[1:]] == list(known_machines())
    assert all(load_machine(name).description for name in known_machines())
    assert any("hgx-h100" in line and "80 GiB" in line and "four NVSwitches" in line for line in lines)


def test_names_and_more_columns_can_be_had() -> None:
    assert run("-o", "name").output.split() == list(known_machines())
    assert "NUMA-NODES" in run("-o", "wide", "t4").output
    assert len(run("t4", "gh200").output.splitlines()) == 3


def test_a_file_of_ones_own_is_read_and_its_gpu_in_mig_mode_shown(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(CUT)

    (machine,) = read_document(run(str(file), "-o", "json").output, "MachineList")["items"]

    assert machine["description"] == "Two A30, one of them in MIG mode"
    assert machine["migEnabled"] == ["0000:65:00.0"]
    assert machine["iommuGroups"] == 2
    assert " on " in run(str(file)).output


def test_gpus_that_share_an_iommu_group_are_told() -> None:
    found = read_document(run("passthrough-quad", "a100-vgpu-guest", "-o", "json").output, "MachineList")[
        "items"
    ]
    assert [one.get("iommuGroups") for one in found] == [3, None]
    assert "3" in run("passthrough-quad", "-o", "wide").output


def test_what_is_wrong_in_a_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(CUT.replace("  mig: a30-24gb\n", "").replace("minor: 0", "minr: 0"))

    told = str(run(str(file)).exception)

    assert "gpus[1].mig_enabled: needs product.mig" in told
    assert "gpus[0].minr: unknown field" in told


def test_the_page_has_every_field_and_its_example_is_a_machine(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "fakes-and-machines.md").read_text()
    sources = [(ROOT / "fakegpu" / "machine" / name).read_text() for name in ("spec.py", "fields.py")]
    read = {field for text in sources for field in re.findall(FIELD, text)}
    example = re.search(r"```yaml\n(description:.*?)```", page, re.DOTALL)
    assert example is not None
    file = tmp_path / "example.yaml"
    file.write_text(example[1])

    assert {"mig_enabled", "switch_links", "cluster_uuid", "ends_with_mig"} <= read
    assert [
        field for field in sorted(read) if not re.search(rf"`[\w.\[\]]*\b{field}\b[\w.\[\]]*`", page)
    ] == []
    assert run(str(file)).exit_code == 0


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_gpu_in_mig_mode_is_offered_so_from_the_beginning(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(CUT if mode == "on" else CUT.replace(", mig_enabled: true", ""))
    config = tmp_path / "node.yaml"
    config.write_text(
        'version: v1\nrules:\n- {when: "has(gpu.migEnabled) && gpu.migEnabled", mig: dynamic}\n'
    )

    offered = CliRunner().invoke(commands, ["plan", "--machine", str(file), "--config", str(config)]).output

    assert ("1g.6gb" in offered) == (mode == "on")
