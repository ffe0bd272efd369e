"""A file that nests too deeply, and what is no file, is damaged as any other, and stops nobody's start."""

import os
from pathlib import Path

import pytest

from tests.kubeletplugin.fake_kubelet import short_folder
from tests.kubeletplugin.fake_node import BOOT, FakeNode
from tests.plugin import DaemonFolder

MACHINE = "a30-quad"

UID = "0b5d3e2e-1f0a-4a51-9f3b-000000000001"
FILES = (
    f"{BOOT}/journal/{UID}.json",
    f"{BOOT}/sharing/gpu-0000-17-00-0.json",
    f"{BOOT}/fabric/partition-7.json",
    f"{BOOT}/memory/{UID}_0000:17:00.0.json",
    f"{BOOT}/healing/0000:17:00.0.json",
    f"cdi/k8s.gpu.nvidia.com-claim_{UID}.json",
)
each_damage = pytest.mark.parametrize("is_pipe", [False, True], ids=["", "pipe"])


def damage(path: Path, *, is_pipe: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_pipe:
        os.mkfifo(path)
    else:
        path.write_bytes(b'{"schema":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001)


@each_damage
def test_the_plugin_starts_beside_them_and_prepares(node: FakeNode, *, is_pipe: bool) -> None:
    for file in FILES:
        damage(node.folder / file, is_pipe=is_pipe)

    node.restart()
    for part in (node.sharing_reconciler.run_once, node.memory.run_once, node.fabric.run_once):
        part()
    node.healer.finish()

    assert node.prepare(node.claim("train", 1))


@each_damage
def test_the_supervisor_puts_the_record_of_a_daemon_aside(*, is_pipe: bool) -> None:
    with short_folder() as mps_dir:
        folder = DaemonFolder(mps_dir, "gpu-0000-17-00-0")
        damage(folder.record, is_pipe=is_pipe)

        assert folder.read() is None
        assert not folder.record.exists()
