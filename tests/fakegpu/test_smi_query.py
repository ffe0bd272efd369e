"""nvidia-smi --query-gpu of a fake machine: fields, formats, and the words of the real tool."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from driver.nvml.api import Code
from driver.nvml.health.calls import EccErrors
from fakegpu.machine.capabilities import VISIBLE_NODES, access_minor
from tests.fakegpu.programs import DEADLINE_SECONDS, Programs

if TYPE_CHECKING:
    from pathlib import Path

CSV, BARE, NO_UNITS = "--format=csv", "--format=csv,noheader", "--format=csv,noheader,nounits"


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Eight H100."""
    return Programs(tmp_path, "hgx-h100")


def ask(programs: Programs, fields: str, form: str = BARE, *more: str) -> list[str]:
    code, lines = programs.smi(f"--query-gpu={fields}", form, *more)
    assert code == 0
    return lines


def test_prints_a_line_for_each_gpu_below_the_names_of_the_fields(programs: Programs) -> None:
    lines = ask(programs, "index,name,uuid,memory.total,mig.mode.current", CSV)

    assert lines[0] == "index, name, uuid, memory.total [MiB], mig.mode.current"
    assert len(lines) == 9
    assert lines[1] == f"0, NVIDIA H100 80GB HBM3, {programs.uuid(0)}, 81559 MiB, Disabled"


def test_units_stay_in_the_head_and_leave_the_values(programs: Programs) -> None:
    fields = "memory.total,utilization.gpu,memory.used,memory.free"

    head, first, *_ = ask(programs, fields, "--format=csv,nounits")
    assert head == "memory.total [MiB], utilization.gpu [%], memory.used [MiB], memory.free [MiB]"
    assert first == "81559, 0, 0, 81105"
    assert ask(programs, fields)[0] == "81559 MiB, 0 %, 0 MiB, 81105 MiB"
    assert ask(programs, fields, NO_UNITS)[0] == "81559, 0, 0, 81105"
    assert ask(programs, "memory.reserved")[0] == "454 MiB"


def test_used_memory_is_what_processes_have(programs: Programs, tmp_path: Path) -> None:
    group = programs.machine.pretend_cgroups(tmp_path / "cgroups").make("/pod/a").path
    client = programs.machine.cuda(0, group, process_id=4711)
    client.allocate(3 * 2**30)

    assert ask(programs, "memory.used,memory.free")[:2] == ["3072 MiB, 78033 MiB", "0 MiB, 81105 MiB"]
    programs.machine.use(0, processes={12: 2**30})
    assert ask(programs, "memory.used,memory.free")[0] == "4096 MiB, 77009 MiB"
    programs.machine.use(0, processes={})
    client.end()
    assert ask(programs, "memory.used,memory.free")[0] == "0 MiB, 81105 MiB"


def test_says_how_busy_and_how_hot_a_gpu_is(programs: Programs) -> None:
    fields = "utilization.gpu,utilization.memory,power.draw,enforced.power.limit,temperature.gpu"

    assert ask(programs, fields)[0] == "0 %, 0 %, 87.50 W, 700.00 W, 31"
    programs.machine.use(0, compute=0.97, memory=0.4, power_milliwatts=689_120, temperature_celsius=71)
    assert ask(programs, fields)[:2] == [
        "97 %, 40 %, 689.12 W, 700.00 W, 71",
        "0 %, 0 %, 87.50 W, 700.00 W, 31",
    ]


def test_says_how_many_errors_the_memory_has_had(programs: Programs) -> None:
    programs.machine.ecc(0, EccErrors(5, 1))
    fields = "ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total"

    assert ask(programs, fields)[:2] == ["5, 1", "0, 0"]


def test_says_what_the_driver_and_the_bus_say(programs: Programs) -> None:
    version = programs.machine.state.driver_version
    fields = "driver_version,pci.bus_id,pci.domain,pci.bus,pci.device,count,compute_cap,compute_mode"

    assert ask(programs, fields)[0] == f"{version}, 00000000:1B:00.0, 0x0000, 0x1B, 0x00, 8, 9.0, Default"
    programs.smi("-i", "0", "-c", "EXCLUSIVE_PROCESS")
    assert ask(programs, "compute_mode", BARE, "-i", "0") == ["Exclusive_Process"]


def test_older_names_of_fields_are_known_and_shown_as_the_newer(programs: Programs) -> None:
    lines = ask(programs, "gpu_name, gpu_uuid, gpu_bus_id", CSV)

    assert lines[0] == "name, uuid, pci.bus_id"
    assert lines[1] == f"NVIDIA H100 80GB HBM3, {programs.uuid(0)}, 00000000:1B:00.0"
    assert re.fullmatch(r"20\d\d/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", ask(programs, "timestamp")[0])


def test_only_the_gpus_that_are_named_are_asked(programs: Programs) -> None:
    assert ask(programs, "index", BARE, "-i", f"3,{programs.uuid(5)}") == ["3", "5"]
    assert programs.smi("--query-gpu=index", CSV, "-i", "9") == (Code.NOT_FOUND, ["No devices were found"])


def test_mig_mode_is_said_and_takes_the_utilization_away(programs: Programs) -> None:
    nvml = programs.machine.nvml()
    nvml.init()
    nvml.device_by_index(0).set_mig_mode(True)

    lines = ask(programs, "mig.mode.current,mig.mode.pending,utilization.gpu")

    assert lines[:2] == ["Enabled, Enabled, [N/A]", "Disabled, Disabled, 0 %"]


def test_what_a_fake_gpu_has_no_value_for_is_not_available(programs: Programs, tmp_path: Path) -> None:
    assert ask(programs, "clocks.max.sm,temperature.memory,serial")[0] == "[N/A], [N/A], [N/A]"
    (tmp_path / "older").mkdir()
    older = Programs(tmp_path / "older", "t4")
    assert ask(older, "mig.mode.current,utilization.gpu")[0] == "[N/A], 0 %"
    (tmp_path / "guest").mkdir()
    guest = Programs(tmp_path / "guest", "a100-vgpu-guest")
    assert ask(guest, "power.draw,temperature.gpu")[0] == "[N/A], [N/A]"


def test_a_call_that_fails_is_told_in_its_place(programs: Programs) -> None:
    programs.machine.fail("memory_bytes", gpu=0)

    assert ask(programs, "index,memory.total")[:2] == ["0, [Unknown Error]", "1, 81559 MiB"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--query-gpu=foo", CSV), 'Field "foo" is not a valid field to query.'),
        (("--query-gpu=name,foo,bar", CSV), 'Field "foo" is not a valid field to query.'),
        (("--query-gpu=name",), "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help."),
        (("--query-gpu=name", "--format=noheader"), "Invalid combination of input arguments."),
        (("--query-gpu=name", "--format=csv,pretty"), "Invalid combination of input arguments."),
        ((CSV,), "Invalid combination of input arguments"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    programs: Programs, words: tuple[str, ...], said: str
) -> None:
    code, lines = programs.smi(*words)

    assert code == Code.INVALID_ARGUMENT
    assert lines[0].startswith(said)


def test_inside_of_a_container_only_its_gpus_and_partitions_are_there(programs: Programs) -> None:
    nvml = programs.machine.nvml()
    nvml.init()
    device = nvml.device_by_index(2)
    device.set_mig_mode(True)
    profile = next(one for one in device.gpu_instance_profiles() if one.name == "1g.10gb")
    instances = []
    for placement in device.gpu_instance_placements(profile.id)[:2]:
        instance = device.create_gpu_instance(profile.id, placement)
        instances.append((instance.id, device.create_compute_instance(instance.id, 0).id))
    (gi, ci), minor = instances[1], device.minor()
    nodes = [f"/dev/nvidia{minor}", f"/dev/nvidia-caps/nvidia-cap{access_minor(minor, gi)}"]
    nodes.append(f"/dev/nvidia-caps/nvidia-cap{access_minor(minor, gi, ci)}")

    def inside(*words: str, count: int) -> list[str]:
        done = subprocess.run(
            [programs.root / "usr/bin/nvidia-smi", *words],
            env={**os.environ, VISIBLE_NODES: ":".join(nodes[:count])},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=DEADLINE_SECONDS,
        )
        return done.stdout.splitlines()

    both = inside("-L", count=3)
    second = device.mig_devices()[1]
    assert both[0].startswith("GPU 0: ")
    assert both[1:] == [f"  MIG {'1g.10gb':<12}Device  0: (UUID: {second.uuid})"]
    assert len(inside("-L", count=2)) == 1
    assert inside("--query-gpu=index,count,uuid", BARE, count=1) == [f"0, 1, {programs.uuid(2)}"]


def test_ends_without_a_word_when_nobody_reads_on(programs: Programs) -> None:
    smi = programs.root / "usr/bin/nvidia-smi"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run([smi, "-L"], stdout=closed, stderr=subprocess.PIPE, check=False, timeout=60)

    assert done.stderr == b""
    assert done.returncode == -13
