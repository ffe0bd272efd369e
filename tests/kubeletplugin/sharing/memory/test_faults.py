"""What NVML, the runtime and the plugin itself can do wrong takes no memory from anybody."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubeletplugin.kubelet.wire.containers import NotAnswered
from kubeletplugin.sharing.memory.claim_memory import memory_key
from kubeletplugin.sharing.memory.one_gpu import Ledger, Part, place_of
from tests.gpus import (
    Cgroup,
    NvmlError,
    NvmlTimeout,
    StorageError,
)
from tests.kubeletplugin.sharing.memory.memory_node import GIB, MemoryNode
from tests.plugin import ContainerName, Entry, KeyedLocks


def test_what_passes_within_the_patience_is_waited_for(l4s: MemoryNode) -> None:
    l4s.be_patient(10.0)
    device = l4s.share("u-1", 8 * GIB)
    l4s.machine.fail("set_memory_limits", times=2)
    assert l4s.hard(l4s.run(device)) == 8 * GIB


def test_a_journal_that_cannot_be_read_for_a_moment_is_waited_for(l4s: MemoryNode) -> None:
    l4s.be_patient(10.0)
    device = l4s.share("u-1", 8 * GIB)
    container = l4s.container(device)
    read, failures = l4s.journal.get, [StorageError("too many open files"), StorageError("again")]

    def get(uid: str) -> Entry | None:
        if failures:
            raise failures.pop()
        return read(uid)

    l4s.journal.get = get  # type: ignore[method-assign]  # what the disk does for a moment
    l4s.start(container)
    assert l4s.hard(container) == 8 * GIB
    assert not failures


def test_a_container_that_is_gone_is_not_waited_for(l4s: MemoryNode) -> None:
    l4s.be_patient(1000.0)
    container = l4s.container(l4s.share("u-1", 8 * GIB))
    l4s.on_step = lambda step: l4s.end(container) if step == "memory noted" else None
    with pytest.raises(NvmlError):
        l4s.start(container)
    l4s.on_step = lambda _step: None
    l4s.memory.run_once()
    assert l4s.files() == []


def test_whoever_waits_when_the_plugin_ends_is_left_to_the_next_instance(l4s: MemoryNode) -> None:
    l4s.be_patient(1000.0)
    container = l4s.container(l4s.share("u-1", 8 * GIB))
    l4s.machine.fail("set_memory_limits")
    l4s.memory.stop()
    with pytest.raises(NotAnswered):
        l4s.start(container)


def test_a_gpu_that_hangs_refuses_in_time_is_the_fault_of_its_claims_and_hurts_no_other(
    l4s: MemoryNode,
) -> None:
    l4s.guard_seconds = 0.2
    l4s.restart()
    hung, well = l4s.share("u-1", 8 * GIB), l4s.share("u-2", 8 * GIB, gpu=1)
    l4s.run(hung)
    running = l4s.run(well, "a")
    l4s.discovery.snapshot()
    l4s.machine.hang(gpu=0)
    with pytest.raises(NvmlTimeout):
        l4s.run(hung, "b")
    assert l4s.hard(l4s.run(well, "b"), gpu=1) == l4s.hard(running, gpu=1) == 4 * GIB
    l4s.memory.run_once()
    ((device, words),) = l4s.memory.faults().items()
    assert device == ("u-1", hung)
    assert "did not return within 0.2 s" in words
    assert [(one.claim_uid, one.used_bytes) for one in l4s.memory.used()] == [
        ("u-1", None),
        *[("u-2", 0)] * 2,
    ]


def test_sixteen_containers_of_one_claim_at_once_divide_it(l4s: MemoryNode) -> None:
    l4s.be_patient(30.0)
    device = l4s.share("u-1", 16 * GIB)
    containers = [l4s.container(device, f"c{number}") for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: l4s.memory.start(one.start), containers))
    assert sum(map(l4s.hard, containers)) <= 16 * GIB
    l4s.memory.run_once()
    assert [l4s.hard(one) for one in containers] == [1 * GIB] * 16


def test_a_disk_that_takes_nothing_lets_no_container_start(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    folder = l4s.boot_files / "memory"
    folder.rmdir()
    with pytest.raises(StorageError):
        l4s.run(device)


def test_a_gpu_that_another_instance_works_on_is_no_fault(
    l4s: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.sharing.memory.claim_memory._LOCK_SECONDS", 0.1)
    device = l4s.share("u-1", 8 * GIB)
    container = l4s.run(device)
    with KeyedLocks(l4s.folder / "locks").holding([memory_key(l4s.pci())], 1):
        l4s.memory.run_once()
    assert l4s.memory.faults() == {}
    assert l4s.hard(container) == 8 * GIB


def test_a_node_without_limited_containers_asks_nobody(l4s: MemoryNode) -> None:
    def refuse() -> None:
        raise AssertionError("NVML is asked")

    l4s.meddle = refuse
    l4s.listed_containers = AssertionError("the kubelet is asked")  # type: ignore[assignment]
    l4s.memory.run_once()
    l4s.memory.check_driver()
    assert not l4s.memory.wanted.is_set()


def test_the_driver_is_asked_about_only_while_a_container_has_a_limit(l4s: MemoryNode) -> None:
    """It is looked at once a second, for as long as the node runs."""
    l4s.memory.run_once()
    l4s.driver_generation = "2"
    l4s.memory.check_driver()
    assert not l4s.memory.wanted.is_set()

    container = l4s.run(l4s.share("u-1", 8 * GIB))
    l4s.driver_generation = "3"
    l4s.memory.check_driver()
    assert l4s.memory.wanted.is_set()

    l4s.memory.wanted.clear()
    l4s.end(container)
    for _ in range(2):
        l4s.memory.run_once()
    l4s.driver_generation = "4"
    l4s.memory.check_driver()
    assert not l4s.memory.wanted.is_set()


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
    ledger(tmp_path).put("u-2", PCI, [part("u-2")])
    found = ledger(tmp_path)
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
