"""``tools.hardware`` records what a node answered: a machine file that gives the same node again."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakegpu.machine.mig_profiles import CATALOGUES
from fakegpu.machine.spec import MachineSpec, topology_level
from tests.fakegpu.recorded.comparing import differences
from tests.gpuctl.verify.subjects import machine_in, subject_of
from tests.gpus import MACHINES, Code, ConfigError, functions_of, known_machines, load_machine
from tools.hardware.recording import CALLS, LEFT_OUT, MACHINE, write_recording
from tools.hardware.stand_ins import StandIns

DIFFERENT = ("t4", "gb200-tray", "a30-vgpu-guest", "vgpu-host-l40s")
"""The long variant of the tests has all."""


def recorded(tmp_path: Path, name: str) -> Path:
    """A recording of a fake machine."""
    folder = tmp_path / "recorded"
    write_recording(subject_of(tmp_path, machine_in(tmp_path, name)), folder)
    return folder


def shape(spec: MachineSpec) -> list[Any]:
    """What a machine file says besides the answers of NVML: the places of the GPUs, and vGPUs."""
    boards = [(slot.cpus, slot.beside, slot.bridge_in_group, slot.virtual_functions) for slot in spec.slots]
    groups = [functions_of(spec)[slot.pci].group for slot in spec.slots] if spec.iommu.present else []
    levels = [topology_level(one, other) for one in spec.slots for other in spec.slots]
    host, fabric = spec.product.vgpu, spec.fabric_manager
    shared = fabric.partitions if fabric and fabric.shared else ()
    return [boards, groups, levels, spec.product.sriov, host and host.framework, shared]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give ``name`` the machines."""
    if "name" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--hypothesis-profile") == "long"
        metafunc.parametrize("name", known_machines() if is_long else DIFFERENT)


def test_the_machine_file_of_a_recording_gives_the_same_node(tmp_path: Path, name: str) -> None:
    folder = recorded(tmp_path, name)
    assert list(differences(folder, everything=True)) == []
    assert shape(load_machine(str(folder / MACHINE))) == shape(load_machine(name))


def test_mig_profiles_that_no_table_has_are_written_into_the_machine_file(tmp_path: Path) -> None:
    table = yaml.safe_load((CATALOGUES / "a30-24gb.yaml").read_text())
    # Another version of the NVIDIA driver reserves more.
    table["profiles"][0]["memory_mib"] -= 64
    machine = yaml.safe_load((MACHINES / "a30-quad.yaml").read_text())
    machine["product"]["mig"] = table
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(machine))
    folder = recorded(tmp_path, str(tmp_path / "mine.yaml"))
    written = yaml.safe_load((folder / MACHINE).read_text())["product"]["mig"]
    assert written == {**table, "profiles": sorted(table["profiles"], key=lambda one: int(one["index"]))}
    assert list(differences(folder, everything=True)) == []


def test_a_recording_names_neither_the_node_nor_its_boards_nor_its_processes(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "a30-quad")
    machine.set_processes(0, (4711,))
    uuids = [machine.uuid(slot.pci) for slot in machine.spec.slots]
    folder = tmp_path / "recorded"
    names = write_recording(subject_of(tmp_path, machine), folder)
    texts = {name: (folder / name).read_text() for name in names}
    for secret in (*uuids, "4711"):
        assert not any(secret in text for text in texts.values()), secret
    listed = yaml.safe_load(texts[MACHINE])["gpus"]
    stand_ins = [one["uuid"] for one in listed]
    assert len(set(stand_ins)) == 4
    calls = json.loads(texts[CALLS])
    assert [one["answer"] for one in calls if one["call"] == "uuid"] == stand_ins
    (process,) = {str(one["answer"]) for one in calls if one["call"] == "process_ids"} - {"[]"}
    assert process == "[1000001]"


def test_the_folder_is_its_owners_and_no_file_in_it_is_overwritten(tmp_path: Path) -> None:
    subject, folder = subject_of(tmp_path, machine_in(tmp_path, "t4")), tmp_path / "recorded"
    write_recording(subject, folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    with pytest.raises(ConfigError, match=r"has machine\.yaml, nvml\.json"):
        write_recording(subject, folder)


def test_a_gpu_that_hangs_costs_only_what_comes_after_the_call(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "a30-quad")
    subject = subject_of(tmp_path, machine)
    machine.hang("power_milliwatts", 1)
    machine.fail("nvlinks", 2, Code.UNKNOWN)
    folder = tmp_path / "recorded"
    names = write_recording(subject, folder, deadline_seconds=0.3)
    machine.heal()
    assert MACHINE in names
    calls = json.loads((folder / CALLS).read_text())
    assert [one["call"] for one in calls if one.get("hangs")] == ["power_milliwatts"]
    assert [one["code"] for one in calls if one["call"] == "nvlinks" and "code" in one] == [Code.UNKNOWN]
    assert "nvmlDeviceGetPowerUsage" in (folder / LEFT_OUT).read_text()
    assert len(load_machine(str(folder / MACHINE)).slots) == 4


XML = """<?xml version="1.0" ?>
<nvidia_smi_log>
  <gpu id="00000000:17:00.0">
    <product_name>NVIDIA A30 of node-17</product_name>
    <serial>1324021000001</serial>
    <uuid>GPU-8A3C0000-1111-2222-3333-444455556666</uuid>
    <gpu_pdi>0x77a1b2c3d4e5f607</gpu_pdi>
    <platformInfo><chassis_serial_number>N/A</chassis_serial_number></platformInfo>
    <processes><process_info><pid>4711</pid>
      <process_name>train --key=hush < "in" > out</process_name></process_info></processes>
  </gpu>
</nvidia_smi_log>
"""


def test_the_log_of_nvidia_smi_keeps_values_and_loses_names() -> None:
    stand_ins = StandIns(("node-17", "gpu"), b"key")
    log = stand_ins.log(XML)
    for secret in ("1324021000001", "8A3C", "77a1b2c3", "4711", "hush", "node-17"):
        assert secret not in log
    assert "<chassis_serial_number>N/A<" in log
    assert "<product_name>NVIDIA A30 of masked-" in log
    # NVML writes the same UUID in lower case.
    assert stand_ins.text("GPU-8a3c0000-1111-2222-3333-444455556666") in log
    assert StandIns((), b"other").log(XML) != log
    assert stand_ins.text("00000000-0000-0000-0000-000000000000") == "00000000-0000-0000-0000-000000000000"
