"""A GPU that somebody uses is left alone, and a node on which something hands out GPUs as a whole."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from driver.process.boot import running_boot_id
from gpuctl.verify.change.guard import Refused, refusals
from gpuctl.verify.subject import Subject
from kubeletplugin.claims.journal.entry import encode
from tests.clusters import boot_folder
from tests.gpuctl.doctor.nodes import entry, held
from tests.gpuctl.verify.subjects import machine_in, subject_of
from tests.gpus import FakeMachine, GpuInstanceProfile

UID = "11111111-2222-3333-4444-555555555555"
ROOT_STATUS = "Name:\tx\nUid:\t0\t0\t0\t0\nCapBnd:\t000001ffffffffff\nCapEff:\t000001ffffffffff\n"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return machine_in(tmp_path, "gb200-tray")


@pytest.fixture
def subject(tmp_path: Path, machine: FakeMachine) -> Subject:
    return subject_of(tmp_path, machine)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The processes of a host on which only the kernel runs, and this process."""
    folder = tmp_path / "processes"
    add_process(folder, "2", "kthreadd")
    add_process(folder, "self", "python")
    return folder


def add_process(proc: Path, pid: str, name: str, *words: str, opens: Path | None = None) -> None:
    """A process of root, with its command line, that may have a file open."""
    folder = proc / pid
    for made in ("fd", "fdinfo", "ns"):
        (folder / made).mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
    (folder / "status").write_text(ROOT_STATUS)
    (folder / "ns/user").symlink_to("user:[4026531837]")
    (folder / "mountinfo").write_text("7 1 0:6 / / rw - tmpfs tmpfs rw\n")
    if opens is not None:
        (folder / "fd/3").symlink_to(opens)
        (folder / "fdinfo/3").write_text("pos:\t0\nmnt_id:\t7\n")


def write(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_node_that_nobody_uses_may_be_changed(subject: Subject, proc: Path) -> None:
    write(subject.places.host_root / "etc/cdi/nvidia.yaml", static_spec())
    write(subject.places.registry_dir / "net.example.com-reg.sock")
    gone = checkpoint(**{"nvidia.com/gpu": []})
    write(subject.places.host_root / "device-plugins/kubelet_internal_checkpoint", gone)
    add_process(proc, "70", "sshd", "/usr/sbin/sshd", "-D")

    assert refusals(subject, proc) == Refused()


def static_spec() -> str:
    """What nvidia-ctk generates for all GPUs."""
    node = "{path: /dev/nvidia0}"
    return f"kind: nvidia.com/gpu\ndevices: [{{name: '0', containerEdits: {{deviceNodes: [{node}]}}}}]\n"


def checkpoint(*given: str, **offered: list[str]) -> str:
    """The kubelet's checkpoint of device plugins."""
    entries = [{"ResourceName": name, "PodUID": "1"} for name in given]
    return json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": offered}, "Checksum": 1})


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("registry/gpu.nvidia.com-reg.sock", "", "registered with the kubelet at"),
        ("registry/compute-domain.nvidia.com-reg.sock", "", "registered with the kubelet at"),
        ("device-plugins/nvidia-gpu.sock", "", "a device plugin for GPUs serves"),
        ("device-plugins/kubelet_internal_checkpoint", checkpoint("nvidia.com/gpu"), "has nvidia.com/gpu"),
        (
            "device-plugins/kubelet_internal_checkpoint",
            checkpoint(**{"nvidia.com/mig-1g.10gb": ["a"], "rdma/hca": ["b"]}),
            "has nvidia.com/mig-1g.10gb",
        ),
        ("device-plugins/kubelet_internal_checkpoint", "{", "not as a kubelet writes it"),
        (f"plugins/gpu.nvidia.com/{running_boot_id()}/journal/{UID}.json", "{", "entry of claim"),
        (f"cdi/k8s.gpu.nvidia.com-claim_{UID}.yaml", "[", "cannot be read"),
    ],
)
def test_nothing_is_changed_beside_another_driver(
    subject: Subject, tmp_path: Path, file: str, text: str, said: str
) -> None:
    write(tmp_path / file, text)

    found = refusals(subject)

    (reason,) = found.of_node
    assert said in reason
    assert ": " in reason, "the way out"
    assert not found.of_gpus


@pytest.mark.parametrize(
    "words",
    [
        ("/usr/bin/nvidia-device-plugin", "--mig-strategy=single"),
        ("gpu-kubelet-plugin",),
        ("/usr/bin/python3", "/usr/local/bin/gpu-dra-kubeletplugin", "--node", "a"),
        ("/usr/bin/python3", "-m", "kubeletplugin.sharing.mps"),
        ("nvidia-cuda-mps-control", "-d"),
    ],
)
def test_nothing_is_changed_while_a_program_hands_out_gpus(
    subject: Subject, proc: Path, words: tuple[str, ...]
) -> None:
    add_process(proc, "4711", "x", *words)

    (reason,) = refusals(subject, proc).of_node

    assert "4711" in reason


def test_without_the_processes_of_the_host_nothing_is_changed(subject: Subject, proc: Path) -> None:
    (proc / "2/comm").write_text("sleep\n")

    (reason,) = refusals(subject, proc).of_node

    assert "hostPID" in reason


def test_a_gpu_that_a_process_has_open_is_left_alone_and_the_others_are_not(
    subject: Subject, proc: Path, tmp_path: Path
) -> None:
    first, second = subject.gpus[:2]
    dev = tmp_path / "driver/dev"
    add_process(proc, "80", "nv-hostengine", "nv-hostengine", opens=own_file(dev / f"nvidia{first.minor}"))
    add_process(proc, "81", "nvidia-persiste", "x", opens=own_file(dev / f"nvidia{second.minor}"))
    add_process(proc, "82", "ended")
    (proc / "82/mountinfo").unlink()
    (proc / "82/fd").rmdir()

    found = refusals(subject, proc)

    assert found.of_node == ()
    assert set(found.of_gpus) == {first.pci}
    assert "nv-hostengine (process 80)" in found.of_gpus[first.pci]
    assert set(found.of_resets) == {second.pci}
    assert "systemctl stop nvidia-persistenced" in found.of_resets[second.pci]


def own_file(node: Path) -> Path:
    """Replace a node, which may be a link to the null device, by a file that nothing else has open."""
    node.unlink()
    node.write_text("")
    return node


Change = Callable[[FakeMachine, Subject], None]


def cut(machine: FakeMachine, subject: Subject) -> None:
    device = machine.nvml()
    device.init()
    handle = device.device_by_pci(subject.gpus[0].pci)
    handle.set_mig_mode(enabled=True)
    profile: GpuInstanceProfile = handle.gpu_instance_profiles()[0]
    handle.create_gpu_instance(profile.id, handle.gpu_instance_placements(profile.id)[0])


def claim(_: FakeMachine, subject: Subject, boot_id: str = "") -> None:
    gpu = subject.gpus[0]
    device = replace(held(), pci=str(gpu.pci), uuid=gpu.uuid)
    made = replace(entry(), devices=(device,))
    write(boot_folder(subject.places.data_dir, boot_id) / f"journal/{UID}.json", encode(made).decode())


def share(_: FakeMachine, subject: Subject, boot_id: str = "") -> None:
    record = {"gpus": [str(subject.gpus[0].pci)]}
    write(boot_folder(subject.places.data_dir, boot_id) / "sharing/gpu-x.json", json.dumps(record))


def prepare(_: FakeMachine, subject: Subject) -> None:
    edits = {"deviceNodes": [{"path": f"/dev/nvidia{subject.gpus[0].minor}"}]}
    spec = {"kind": "k8s.gpu.nvidia.com/claim", "devices": [{"name": "a", "containerEdits": edits}]}
    write(subject.places.cdi_dir / f"k8s.gpu.nvidia.com-claim_{UID}.json", json.dumps(spec))


def show(_: FakeMachine, subject: Subject) -> None:
    card = f"bus/pci/devices/{subject.gpus[0].pci}/drm/card1/card1-DP-1/status"
    write(subject.places.sysfs_root / card, "connected\n")


def give_away(_: FakeMachine, subject: Subject) -> None:
    driver = subject.places.sysfs_root / f"bus/pci/devices/{subject.gpus[0].pci}/driver"
    driver.unlink()
    driver.symlink_to("../../../bus/pci/drivers/vfio-pci")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda machine, subject: machine.set_processes(subject.gpus[0].pci, (4711,)),
            "process 4711 uses it",
        ),
        (
            lambda machine, subject: machine.fail("process_ids", subject.gpus[0].pci),
            "NVML cannot say which processes use it",
        ),
        (lambda machine, subject: machine.lose(subject.gpus[0].pci), "NVML cannot read it"),
        (cut, "somebody has made 1 GPU instance"),
        (claim, "holds it: delete the pods"),
        (share, "set up for shares"),
        (prepare, "the CDI spec of a claim"),
        (show, "a display is attached to it (card1-DP-1)"),
        (give_away, "the kernel driver vfio-pci has it"),
    ],
)
def test_a_gpu_is_left_alone_by_itself(
    machine: FakeMachine, subject: Subject, change: Change, said: str
) -> None:
    first = subject.gpus[0].pci
    change(machine, subject)

    found = refusals(subject)

    assert found.of_node == ()
    assert set(found.of_gpus) == {first}
    assert said in found.of_gpus[first]


def test_claims_of_an_earlier_boot_hold_nothing(machine: FakeMachine, subject: Subject) -> None:
    before = "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11"
    claim(machine, subject, before)
    share(machine, subject, before)

    assert refusals(subject) == Refused()
