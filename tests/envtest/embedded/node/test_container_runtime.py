"""Containers print what is played of their commands, with what CDI gave them, and stop when they end."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.embedded.node.container_runtime import ContainerRuntime
from envtest.embedded.node.containers import PodSandbox
from envtest.embedded.node.played_commands import PATH, Command
from tests.clusters import GpuPrograms
from tests.gpus import VISIBLE_NODES

KIND = "k8s.gpu.nvidia.com/claim"


class Node:
    """A runtime whose containers can have the device ``a``, with a program that says what it was given."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "nvidia-smi"
        self.program.write_text('#!/bin/sh\necho "$@"\nenv | sort\nexit 3\n')
        self.program.chmod(0o755)
        mount = {"containerPath": "/usr/bin/nvidia-smi", "hostPath": str(self.program)}
        nodes = [
            {"path": "/dev/nvidia1", "hostPath": "/dev/null"},
            {"path": "/dev/a", "hostPath": "/dev/null"},
        ]
        edits = {"deviceNodes": nodes, "mounts": [mount], "env": ["CUDA_MPS_X=1"]}
        devices = [{"name": "a", "containerEdits": edits}]
        (folder / "cdi").mkdir()
        spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices}
        (folder / "cdi" / "claim.json").write_text(json.dumps(spec))
        self.changed = threading.Condition()
        self.runtime = ContainerRuntime(folder / "cdi", folder / "cgroup", self.changed)
        self.runtime.programs = GpuPrograms()

    def start(self, *words: str, device: str = "a", uid: str = "pod", ends: bool = False) -> None:
        command = Command(words, {"HOSTNAME": "train", "LD_PRELOAD": "/evil.so"})
        devices = [f"{KIND}={device}"] if device else []
        self.runtime.add(PodSandbox(uid, "default", "train"))
        self.runtime.start(uid, "main", devices, command, ends=ends)

    def lines(self, uid: str = "pod") -> list[str]:
        log = self.runtime.find_log(uid, "main")
        assert log is not None
        return [line.text for line in log.lines]

    def wait(self, *lines: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.lines() == list(lines), 20), self.lines()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    one = Node(tmp_path)
    yield one
    one.runtime.close()


def test_a_program_of_cdi_runs_with_what_cdi_gave_and_nothing_of_the_pods_own(node: Node) -> None:
    node.start("nvidia-smi", "topo", "-m")

    given = {"CUDA_MPS_X=1", f"{VISIBLE_NODES}=/dev/a:/dev/nvidia1", f"PATH={PATH}"}
    with node.changed:
        assert node.changed.wait_for(lambda: given <= set(node.lines()), 20)
    assert node.lines()[0] == "topo -m"
    assert not [line for line in node.lines() if line.startswith(("LD_PRELOAD", "HOSTNAME"))]


@pytest.mark.parametrize("words", ["-r", "-L -f /root/.bashrc", "-q -x", "-i 0 -mig 1", "-l 1"])
def test_nvidia_smi_is_run_to_read_and_for_nothing_else(node: Node, words: str) -> None:
    node.start("nvidia-smi", *words.split())

    with node.changed:
        assert node.changed.wait_for(node.lines, 20)
    [line] = node.lines()
    assert f"nvidia-smi {words} is not run here" in line


def test_a_pod_that_ends_wakes_who_sleeps_and_its_log_stays(node: Node) -> None:
    node.start("sh", "-c", "echo one && sleep 9999999999999 && echo two")
    node.wait("one")

    node.runtime.end("pod")
    node.runtime.close()

    assert node.lines() == ["one"]
    assert node.runtime.find("pod") is None
    assert not [thread for thread in threading.enumerate() if thread.name == "container main"]
    assert node.runtime.find_log("another", "main") is None


def test_a_program_that_hangs_is_killed_with_its_pod(node: Node) -> None:
    line = node.program.with_name("line")
    os.mkfifo(line)
    node.program.write_text(f"#!/bin/sh\necho $$ >{line}\nexec sleep 1000\n")
    node.start("nvidia-smi")
    process_id = int(line.read_text())

    node.runtime.close()

    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "container main"]


def test_a_container_has_begun_once_its_program_has_printed_something(node: Node) -> None:
    line = node.program.with_name("line")
    os.mkfifo(line)
    node.program.write_text(f"#!/bin/sh\ncat {line}\n")
    asked = threading.Event()
    node.runtime.on_end = asked.set

    node.start("sh", "-c", "nvidia-smi -L && sleep infinity")
    pod = node.runtime.find("pod")
    container = pod.last("main") if pod is not None else None
    assert container is not None
    assert not container.begun
    line.write_text("GPU 0\n")

    assert asked.wait(20)
    assert (container.begun, node.lines()) == (True, ["GPU 0"])
