"""The log of nvidia-smi is read as drivers of many years print it, and what differs from NVML is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from driver.hardware.gpu import Partition
from gpuctl.doctor.check import require, run_checks
from kubeletplugin.devices.host.driver_programs import Said
from tests.controller.mig_node import cut
from tests.gpuctl.verify.subjects import built_machine, machine_in, subject_of
from tests.gpus import Inventory
from tests.plugin import ProgramHangs
from tools.hardware.nvidia_smi import compare_smi, nvidia_smi, run_smi
from tools.hardware.smi_xml import MOST_CHARACTERS, SmiUnreadable, read_log

LOG = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>535.54.03</driver_version>
	<gpu id="00000000:3B:00.0">
		<addressing_mode>None</addressing_mode>
		<mig_devices><mig_device><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0</compute_instance_id>
		</mig_device></mig_devices>
		<remapped_rows>N/A</remapped_rows>
		<fb_memory_usage><total>81920 MiB</total><used>GPU is lost</used></fb_memory_usage>
		<processes><process_info>
		<process_name>sh -c a && b <c --token=secret</process_name></process_info></processes>
	</gpu>
	<gpu id="00000000:AF:00.0"><mig_devices>None</mig_devices></gpu>
</nvidia_smi_log>
"""


def test_a_log_gives_its_known_values_by_path_and_no_command_lines() -> None:
    log = read_log(f"WARNING: infoROM is corrupted\n{LOG}")
    first, second = log.gpus
    assert (str(first.pci), log.beside) == ("0000:3b:00.0", ("WARNING: infoROM is corrupted",))
    assert first.element.values == {"addressing_mode": "None", "fb_memory_usage/total": "81920 MiB"}
    assert [one.get("gpu_instance_id") for one in first.migs or ()] == ["3"]
    assert (second.migs, second.element.values) == ((), {})
    assert "secret" not in repr(log)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "has failed"),
        (LOG[:200], "no XML log"),
        (LOG.replace("</gpu>", "", 1), "not XML"),
        (LOG.replace('"nvsmi_device_v12.dtd"', '"x" [<!ENTITY name "y">]'), "definitions of its own"),
        (LOG.replace("00000000:3B:00.0", "GPU-1"), "without a PCI address"),
        ("x" * (MOST_CHARACTERS + 1), "more than 16 MiB"),
    ],
)
def test_anything_else_is_refused_and_named(text: str, says: str) -> None:
    with pytest.raises(SmiUnreadable) as refused:
        read_log(text)
    assert says in refused.value.what


RECORDED = Path(__file__).parents[2] / "fakegpu/recorded/h200-r580"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    """What NVML says of the node whose log was recorded."""
    folder = tmp_path_factory.mktemp("h200")
    machine = machine_in(folder, f"fake:{RECORDED / 'machine.yaml'}")
    return require(subject_of(folder, machine).seen.inventory)


def printed(code: int = 0, *beside: str) -> Said:
    """What the real nvidia-smi printed there."""
    return Said(code, (*(RECORDED / "nvidia-smi-q.xml").read_text().splitlines(), *beside))


def test_nothing_differs_between_nvml_and_the_log_of_a_real_node(inventory: Inventory) -> None:
    found = compare_smi(inventory, printed())

    assert (found.status, found.message) == ("ok", "nvidia-smi agrees with NVML about 1 GPU in 16 values")


PARTITION = """<mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device>
<gpu_instance_id>1</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<device_attributes><shared><multiprocessor_count>60</multiprocessor_count></shared></device_attributes>
<fb_memory_usage><total>40448 MiB</total></fb_memory_usage></mig_device></mig_devices>"""


def test_partitions_are_compared_by_their_instances(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "hgx-h100")
    cut(machine, 0, slices=3, start=0)
    seen = require(subject_of(tmp_path, machine).seen.inventory)
    gpu = seen.gpus[0]
    assert gpu.mig is not None
    (partition,) = gpu.mig.partitions
    log = f'<nvidia_smi_log><gpu id="0000{gpu.pci}">{PARTITION}</gpu></nvidia_smi_log>'.replace(
        "<gpu_instance_id>1<", f"<gpu_instance_id>{partition.gpu_instance.id}<"
    )

    def found(*partitions: Partition) -> list[str]:
        assert gpu.mig is not None
        changed = replace(gpu, mig=replace(gpu.mig, partitions=partitions))
        details = compare_smi(replace(seen, gpus=(changed,)), Said(0, (log,))).details
        return [line for line in details if not line.startswith("not")]

    place = f"GPU {gpu.pci}, GPU instance {partition.gpu_instance.id}, compute instance 0"
    assert found(partition) == []
    assert found(replace(partition, multiprocessors=1, memory_bytes=5 << 30)) == [
        f"{place}: multiprocessors: NVML 1, nvidia-smi 60",
        f"{place}: memory: NVML 5120 MiB, nvidia-smi 40448 MiB",
    ]
    assert found() == [f"{place}: only nvidia-smi lists it"]


def test_a_program_that_fails_hangs_or_warns_is_named(tmp_path: Path, inventory: Inventory) -> None:
    warned = compare_smi(inventory, printed(14, "WARNING: infoROM"))
    assert (warned.status, warned.details[0]) == ("warn", "WARNING: infoROM")
    machine = built_machine(tmp_path, "t4")
    program = tmp_path / "driver/usr/bin/nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    with pytest.raises(ProgramHangs):
        run_smi(subject_of(tmp_path, machine), ["-q"], timeout_seconds=0.05)
    program.write_text("#!/bin/sh\necho garbage\n")
    with pytest.raises(SmiUnreadable, match="printed no XML log: garbage"):
        compare_smi(inventory, run_smi(subject_of(tmp_path, machine), ["-q", "-x"]))
    (skipped,) = run_checks("hardware", (nvidia_smi,), subject_of(tmp_path, machine))
    assert skipped.status == "skipped"
