"""What containers have outlives the plugin, and is read by the next one as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.nvml.memory_limits import Cgroup
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.sharing.memory.one_gpu import Ledger, Part, place_of

PCI, OTHER = "0000:18:00.0", "0000:3b:00.0"
NAME = ContainerName("team", "pod", "main")


def part(uid: str = "u-1", pci: str = PCI, inode: int = 7) -> Part:
    return Part(uid, f"{uid}-gpu", pci, Cgroup("/sys/fs/cgroup/a", inode), "id", NAME, 9)


def written(inode: str = "1", hard: str = "2") -> str:
    """A file with one part, of which these are the JSON values."""
    return (
        '{"schema":1,"parts":[{"cdi_device":"d","container_id":"i",'
        f'"cgroup":{{"path":"/a","inode":{inode}}},"name":{{"namespace":"","pod":"","container":""}},'
        f'"hard_bytes":{hard}}}]}}'
    )


def ledger(folder: Path) -> Ledger:
    return Ledger(folder / "claims", lambda: True)


def test_what_was_written_is_read_by_the_next_instance(tmp_path: Path) -> None:
    first = ledger(tmp_path)
    first.put("u-1", PCI, [part(), part(inode=8)])
    first.put("u-1", OTHER, [part(pci=OTHER)])
    first.put("u-2", PCI, [part("u-2")])
    second = ledger(tmp_path)
    assert second.places() == (("u-1", PCI), ("u-1", OTHER), ("u-2", PCI))
    assert second.on_gpu(PCI) == (part(), part(inode=8), part("u-2"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "nonsense",
        '{"schema":2,"parts":[]}',
        '{"schema":1,"parts":[{}]}',
        written(inode="true"),
        written(hard='"2"'),
        written(hard="-1"),
    ],
)
def test_a_file_that_is_none_concerns_its_claim_alone_and_can_be_removed(
    tmp_path: Path, content: str
) -> None:
    found = ledger(tmp_path)
    found.put("u-2", PCI, [part("u-2")])
    (tmp_path / "claims" / f"u-1_{PCI}.json").write_text(content)
    assert found.wrong("u-1", PCI)
    assert found.wrong("u-2", PCI) == ""
    assert found.on_gpu(PCI) == (part("u-2"),)
    found.forget("u-1", PCI)
    assert found.places() == (("u-2", PCI),)


def test_whatever_else_lies_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    found = ledger(tmp_path)
    for name in (
        ".tmp-u-1_0000:18:00.0.json-0123456789ab",
        "u-1.json",
        "u-1_x.json",
        "../u_0000:18:00.0.json",
    ):
        assert place_of(name) is None
    (tmp_path / "claims" / "notes.json").write_text("mine")
    assert found.places() == ()
