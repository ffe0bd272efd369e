"""The log of nvidia-smi is read as drivers of many years print it, and nothing in it is taken on trust."""

from __future__ import annotations

import pytest

from gpuctl.verify.checks.smi_xml import MOST_CHARACTERS, SmiUnreadable, is_unknown, read_list, read_log

LOG = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Fri Aug  4 11:44:30 2023</timestamp>
	<driver_version>535.54.03</driver_version>
	<cuda_version>12.2</cuda_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:3B:00.0">
		<product_name>NVIDIA A100-SXM4-80GB</product_name>
		<addressing_mode>None</addressing_mode>
		<mig_mode>
			<current_mig>Enabled</current_mig>
			<pending_mig>Enabled</pending_mig>
		</mig_mode>
		<mig_devices>
			<mig_device>
				<index>0</index>
				<gpu_instance_id>3</gpu_instance_id>
				<compute_instance_id>0</compute_instance_id>
				<device_attributes>
					<shared>
						<multiprocessor_count>14</multiprocessor_count>
					</shared>
				</device_attributes>
				<fb_memory_usage>
					<total>19968 MiB</total>
				</fb_memory_usage>
			</mig_device>
		</mig_devices>
		<minor_number>1</minor_number>
		<remapped_rows>N/A</remapped_rows>
		<fb_memory_usage>
			<total>81920 MiB</total>
			<used>GPU is lost</used>
		</fb_memory_usage>
		<processes>
			<process_info>
				<gpu_instance_id>3</gpu_instance_id>
				<pid>4711</pid>
				<process_name>sh -c a && b <c --token=secret</process_name>
			</process_info>
		</processes>
	</gpu>
	<gpu id="00000000:AF:00.0">
		<display_mode>Requested functionality has been deprecated</display_mode>
		<mig_mode>
			<current_mig>N/A</current_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
	</gpu>
</nvidia_smi_log>
"""


def test_a_log_gives_its_known_values_by_path_and_the_mig_devices() -> None:
    log = read_log(LOG)
    first, second = log.gpus
    assert (log.element.get("driver_version"), log.element.get("attached_gpus")) == ("535.54.03", "2")
    assert str(first.pci) == "0000:3b:00.0"
    assert first.element.get("missing", "mig_mode/current_mig") == "Enabled"
    assert first.element.get("addressing_mode") == "None"
    assert first.element.get("fb_memory_usage/total") == "81920 MiB"
    assert first.element.get("fb_memory_usage/used") is None
    assert first.element.get("remapped_rows") is None
    assert first.migs is not None
    assert [one.get("gpu_instance_id") for one in first.migs] == ["3"]
    assert first.migs[0].get("device_attributes/shared/multiprocessor_count") == "14"
    assert (second.migs, second.element.values) == ((), {})


def test_command_lines_of_processes_are_not_read_even_if_they_are_no_xml() -> None:
    assert "secret" not in repr(read_log(LOG))


def test_warnings_around_the_log_are_kept() -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"
    assert read_log(LOG).beside == ()
    assert read_log(f"{warning}\n{LOG}\n{warning}").beside == (warning, warning)


def test_a_driver_that_does_not_name_mig_devices_does_not_say_that_there_are_none() -> None:
    gpu = '<nvidia_smi_log><gpu id="0000:3B:00.0">{}</gpu></nvidia_smi_log>'
    for inside in ("", "<mig_devices>N/A</mig_devices>"):
        assert read_log(gpu.format(inside)).gpus[0].migs is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no XML log"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "has failed"),
        (LOG[:1000], "no XML log"),
        (LOG.replace("</gpu>", "", 1), "not XML"),
        (LOG.replace("N/A</remapped", "&name;</remapped"), "not XML"),
        (LOG.replace('"nvsmi_device_v12.dtd"', '"x" [<!ENTITY name "y">]'), "definitions of its own"),
        (LOG.replace("00000000:3B:00.0", "GPU-1"), "without a PCI address"),
        ("x" * (MOST_CHARACTERS + 1), "more than 16 MiB"),
    ],
    ids=["nothing", "failure", "cut off", "unbalanced", "entity", "definitions", "address", "long"],
)
def test_anything_else_is_refused_and_named(text: str, says: str) -> None:
    with pytest.raises(SmiUnreadable) as refused:
        read_log(text)
    assert says in refused.value.what
    assert len(refused.value.what) < 400


def test_words_for_a_value_that_cannot_be_had_are_unknown_and_others_are_not() -> None:
    unknown = (
        *("N/A", "[N/A]", "", "Unknown Error", "ERR!", "GPU is lost", "GPU requires reset"),
        *("Requires Reset", "[Not Supported]", "Insufficient Permissions"),
        *("GPU access blocked by the operating system", "Requested functionality has been deprecated"),
    )
    assert [words for words in unknown if not is_unknown(words)] == []
    assert not any(map(is_unknown, ("None", "No", "0", "Reset", "Not Started", "Disabled")))


def test_the_list_names_gpus_and_mig_devices_by_uuid() -> None:
    listed = read_list(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a1)\n"
        "  MIG 1g.10gb+me  Device  0: (UUID: MIG-b2)\nUnable to determine the device handle for GPU1\n"
    )
    assert (listed.gpus, listed.migs) == ({"GPU-a1": "NVIDIA H100 80GB HBM3"}, {"MIG-b2": "1g.10gb+me"})
