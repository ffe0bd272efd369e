"""The probe says in one line what it got of each device, and which call failed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuctl.probe.__main__ import main
from gpuctl.probe.answer import Answer
from gpuctl.probe.run import LEAST_CHUNK_BYTES, USUAL_BYTES
from tests import needs
from tests.cuda_library.library import CudaDouble, whole_gpus
from tests.gpus import VISIBLE_NODES, FakeMachine, compile_libcuda

GIB = 1 << 30


class Node:
    """Four L4 in a file, and the probe on them."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.machine = FakeMachine.open(f"l4-quad@{folder / 'state'}")
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    @property
    def flag(self) -> str:
        assert self.machine.flag is not None
        return self.machine.flag

    def probe(self, *words: str, cuda: str | None = None, **environment: str) -> tuple[int, Answer]:
        """The exit code and the answer of the program."""
        with self._monkeypatch.context() as patch:
            patch.setenv(VISIBLE_NODES, "/dev/nvidia1")
            for name, value in environment.items():
                patch.setenv(name, value)
            code = main([*words, "--cuda", cuda or self.flag])
        lines = self._capsys.readouterr().out.splitlines()
        assert len(lines) == 1
        return code, Answer.read(lines[0])


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Node:
    return Node(tmp_path, monkeypatch, capsys)


def test_it_uses_the_gpu_whose_node_it_sees_and_leaves_nothing_there(node: Node) -> None:
    code, answer = node.probe()
    (device,) = answer.devices
    assert (code, answer.error, device.kernel) == (0, None, "ok")
    assert (device.uuid, device.name, device.compute_capability) == (
        node.machine.uuid(node.machine.pci(1)), "NVIDIA L4", "8.9",
    )  # fmt: skip
    assert device.allocated_bytes == USUAL_BYTES
    assert not any(gpu.memory.clients for gpu in node.machine.state.gpus.values())


def test_filling_a_device_gets_all_but_less_than_the_smallest_chunk(node: Node) -> None:
    other = node.machine.cuda(1, "/sys/fs/cgroup")
    other.allocate(5 * GIB + 12345)
    device = node.probe("--fill")[1].devices[0]
    assert device.free_bytes is not None
    assert device.total_bytes is not None
    assert device.free_bytes == device.total_bytes - 5 * GIB - 12345
    assert 0 <= device.free_bytes - device.allocated_bytes < LEAST_CHUNK_BYTES


def test_a_failed_call_is_named_and_does_not_hide_the_other_devices(node: Node) -> None:
    node.machine.fail("cuMemAlloc_v2", gpu=0, code=2)
    code, answer = node.probe(**{VISIBLE_NODES: "/dev/nvidia0:/dev/nvidia1"})
    assert code == 1
    assert str(answer.error) == "cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert [device.kernel for device in answer.devices] == [str(answer.error), "ok"]


@needs.GCC
def test_it_finds_through_the_library_what_was_spoiled(node: Node, tmp_path: Path) -> None:
    library = compile_libcuda(tmp_path / "cuda.so")
    double = CudaDouble.lay(tmp_path / "root", whole_gpus(node.machine), library)
    path = str(double.library)
    double.allow(10 * GIB)
    assert node.probe("--fill", cuda=path)[1].devices[3].allocated_bytes == 10 * GIB
    double.spoil("cuCtxSynchronize", "once 700")
    code, answer = node.probe(cuda=path)
    assert (code, len(answer.devices)) == (1, 4)
    assert str(answer.error) == "cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"


def test_it_holds_its_memory_until_stdin_ends_and_loses_it_when_it_is_killed(node: Node) -> None:
    def held() -> list[int]:
        nvml = node.machine.nvml()
        nvml.init()
        return [one.memory_bytes or 0 for one in nvml.device_by_index(1).processes()]

    words = [sys.executable, "-m", "gpuctl.probe", "--hold", "--cuda", node.flag]
    environment = {**os.environ, VISIBLE_NODES: "/dev/nvidia1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    with subprocess.Popen(words, **pipes) as killed, subprocess.Popen(words, **pipes) as ended:
        assert killed.stdout is not None
        assert ended.stdout is not None
        assert "error" not in json.loads(killed.stdout.readline())
        assert "error" not in json.loads(ended.stdout.readline())
        assert held() == [USUAL_BYTES, USUAL_BYTES]
        killed.kill()
        killed.wait()
        assert held() == [USUAL_BYTES]
        ended.communicate(b"")
        assert (ended.returncode, held()) == (0, [])
