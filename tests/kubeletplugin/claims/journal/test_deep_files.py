"""A file that nests too deeply, and what is no file, is damaged as any other, and stops nobody's start."""

from __future__ import annotations

import os

import pytest

from kubeletplugin.sharing.mps.folders import DaemonFolder
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.kubeletplugin.fake_node import BOOT, FakeNode

MACHINE = "a30-quad"

DEEP = b'{"schema":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001


@pytest.mark.parametrize(
    "file",
    [
        f"{BOOT}/journal/0b5d3e2e-1f0a-4a51-9f3b-000000000001.json",
        f"{BOOT}/sharing/gpu-0000-17-00-0.json",
        f"{BOOT}/fabric/partition-7.json",
        f"{BOOT}/memory/0b5d3e2e-1f0a-4a51-9f3b-000000000001_0000:17:00.0.json",
        f"{BOOT}/healing/0000:17:00.0.json",
        "cdi/k8s.gpu.nvidia.com-claim_0b5d3e2e-1f0a-4a51-9f3b-000000000001.json",
    ],
)
@pytest.mark.parametrize("is_pipe", [False, True], ids=["", "pipe"])
def test_the_plugin_starts_beside_it_and_prepares(node: FakeNode, file: str, *, is_pipe: bool) -> None:
    path = node.folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_pipe:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    else:
        path.write_bytes(DEEP)

    node.restart()
    for part in (
        node.sharing_reconciler.run_once,
        node.memory.run_once,
        node.fabric.run_once,
        node.healer.finish,
    ):
        part()

    assert node.prepare(node.claim("train", 1))


@pytest.mark.parametrize("is_pipe", [False, True], ids=["", "pipe"])
def test_the_supervisor_puts_the_record_of_a_daemon_aside(*, is_pipe: bool) -> None:
    with short_folder() as mps_dir:
        folder = DaemonFolder(mps_dir, "gpu-0000-17-00-0")
        folder.record.parent.mkdir(parents=True)
        if is_pipe:
            os.mkfifo(folder.record)
        else:
            folder.record.write_bytes(DEEP)

        assert folder.read() is None
        assert not folder.record.exists()
