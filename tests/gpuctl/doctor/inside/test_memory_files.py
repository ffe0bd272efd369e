"""What holds containers to their memory is read as it lies on the node, and anything in its place is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuctl.doctor.inside.claim_files import HOOK, hook_seen, is_group, named_hooks, read_ledger, sockets_seen
from kubeletplugin.claims.cdi.hooks import HookCopies
from tests.clusters import Object, Unread
from tests.gpuctl.doctor.nodes import UID
from tests.gpus import Cgroup, MemoryLimits, NvmlError
from tests.kubeletplugin.sharing.memory.memory_node import GIB, MemoryNode
from tests.plugin import cdi_spec_file_name

PCI = "0000:1b:00.0"
ALIVE, ENDED = Cgroup("/sys/fs/cgroup/a", 7), Cgroup("/sys/fs/cgroup/b", 8)


def part(cgroup: Cgroup = ALIVE) -> Object:
    names = {"namespace": "team", "pod": "train-0", "container": "main"}
    of = {"cdi_device": f"{UID}-gpu", "container_id": "abc", "name": names}
    place = {"path": cgroup.path, "inode": cgroup.inode}
    return {**of, "cgroup": place, "soft_bytes": 0, "hard_bytes": 100}


def ledger(folder: Path, *parts: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{UID}_{PCI}.json"
    file.write_text(json.dumps({"schema": 1, "parts": parts}))
    return folder


def read(folder: Path, told: MemoryLimits | NvmlError | None = None) -> Any:
    def ask(pci: str, cgroup: str) -> MemoryLimits | None:
        assert (pci, cgroup) == (PCI, ALIVE.path)
        if isinstance(told, NvmlError):
            raise told
        return told

    return read_ledger(folder, lambda cgroup: cgroup == ALIVE, ask)


def test_the_limits_of_containers_that_live_are_compared_with_nvml(tmp_path: Path) -> None:
    folder = ledger(tmp_path / "claims", part(), part(ENDED))

    ((one,), wrong) = read(folder, MemoryLimits(0, 90))

    assert (one.claim_uid, one.pci, one.container) == (UID, PCI, "team/train-0/main")
    assert (one.hard_bytes, one.in_nvml, wrong) == (100, MemoryLimits(0, 90), ())
    assert read(folder)[0][0].in_nvml is None
    assert read(folder, NvmlError("it hangs"))[0][0].in_nvml == Unread("it hangs")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"parts": [1]}', "[" * 100_000])
def test_a_file_that_is_no_ledger_is_told(tmp_path: Path, content: str) -> None:
    (ledger(tmp_path / "claims") / f"{UID}_{PCI}.json").write_text(content)

    limits, (wrong,) = read(tmp_path / "claims")

    assert limits == ()
    assert wrong.startswith(f"{UID}_{PCI}.json: it is not a ledger")


def test_a_group_is_there_only_as_itself(tmp_path: Path) -> None:
    (tmp_path / "kubepods" / "a").mkdir(parents=True)
    path, inode = "/sys/fs/cgroup/kubepods/a", (tmp_path / "kubepods" / "a").stat().st_ino

    assert is_group(tmp_path, Cgroup(path, inode))
    assert not is_group(tmp_path, Cgroup(path, inode + 1))
    assert not is_group(tmp_path, Cgroup("/sys/fs/cgroup/gone", inode))
    assert not is_group(tmp_path, Cgroup("/etc", inode))
    assert not is_group(tmp_path, Cgroup("/sys/fs/cgroup/\0", inode))


def spec(path: str) -> Object:
    edits = {"hooks": [{"hookName": "createRuntime", "path": path}, {"path": "/usr/bin/nvidia-cdi-hook"}]}
    return {"devices": [{"name": "a", "containerEdits": edits}, {"name": "b"}]}


def test_the_hooks_that_claims_name_are_found(tmp_path: Path) -> None:
    (tmp_path / cdi_spec_file_name(UID)).write_text(json.dumps(spec(f"/hook/{HOOK}")))
    (tmp_path / "of-others.json").write_text(json.dumps(spec(f"/elsewhere/{HOOK}")))
    (tmp_path / cdi_spec_file_name("no-spec")).write_text("[]")

    assert named_hooks(tmp_path) == {f"/hook/{HOOK}"}
    assert named_hooks(tmp_path / "missing") == set()


def copy(folder: Path, *others: str) -> Path:
    """A copy that the plugin has put on the host, beside those of other programs."""
    sources = {name: folder / f"{name}-of-image" for name in (*others, HOOK)}
    for name, source in sources.items():
        source.write_bytes(b"program" if name == HOOK else name.encode())
    (folder / "data").mkdir()
    return HookCopies(folder / "data", sources, lambda: True).install() / HOOK


def test_a_copy_is_compared_with_the_image_where_there_is_one(tmp_path: Path) -> None:
    program, image = copy(tmp_path), tmp_path / "image"

    assert (hook_seen("/h", program, image).wrong, hook_seen("/h", program, image).is_own) == ("", None)
    image.write_bytes(b"program")
    assert hook_seen("/h", program, image).is_own is True
    image.write_bytes(b"another")
    assert hook_seen("/h", program, image).is_own is False


def test_a_copy_that_cannot_be_run_or_is_another_file_is_told(tmp_path: Path) -> None:
    program = copy(tmp_path)

    assert hook_seen("/h", program.with_name("gone")).wrong == "it does not exist"
    program.write_bytes(b"something else")
    assert "does not match the name of its folder" in hook_seen("/h", program).wrong
    program.chmod(0o644)
    assert hook_seen("/h", program).wrong == "it cannot be executed"
    assert hook_seen("/h", program.parent).wrong == "it cannot be executed"


def test_sockets_that_others_may_reach_are_told(tmp_path: Path) -> None:
    folder, socket = tmp_path / "sockets", tmp_path / "sockets" / "uid-1.sock"
    folder.mkdir(mode=0o700)
    socket.touch(mode=0o600)
    socket.chmod(0o600)
    (folder / ".uid-2.sock").touch(mode=0o600)

    seen = sockets_seen(folder, lambda path: path == socket)
    assert (seen.answers, seen.open_to_others, seen.is_there) == ((("uid-1.sock", True),), (), True)

    folder.chmod(0o755)
    socket.chmod(0o666)
    assert sockets_seen(folder, lambda _: True).open_to_others == (
        f"{folder}: mode 0755",
        f"{socket}: mode 0666",
    )
    assert not sockets_seen(tmp_path / "missing", lambda _: True).is_there


def test_the_ledger_that_the_plugin_writes_is_read(tmp_path: Path) -> None:
    node = MemoryNode(tmp_path)
    try:
        share = node.share(UID, 8 * GIB)
        running = node.run(share)
        node.end(node.run(share, "ended"))
        folder = node.boot_files / "memory"

        limits, wrong = read_ledger(folder, node.cgroups.is_there, lambda *_: node.limits(running))
    finally:
        node.stop()

    assert wrong == ()
    (one,) = limits
    assert (one.claim_uid, one.pci, one.container) == (UID, node.pci(), "team/pod/main")
    assert isinstance(one.in_nvml, MemoryLimits)
    assert one.hard_bytes == one.in_nvml.hard_bytes > 0
