"""A node that lives through all cases of a file, and a look at what they left behind."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.kubeletplugin.fake_node import FakeNode

SETTLED_SECONDS = 10.0


def used() -> tuple[list[str], int]:
    """What the file descriptors of this process lead to, and how many threads it has."""
    return [_leads_to(name) for name in os.listdir("/proc/self/fd")], threading.active_count()


def is_more(now: tuple[list[str], int], before: tuple[list[str], int]) -> bool:
    """Whether there are more descriptors or threads than before; those of other tests may have ended."""
    return len(now[0]) > len(before[0]) or now[1] > before[1]


def _leads_to(descriptor: str) -> str:
    try:
        return str(Path("/proc/self/fd", descriptor).readlink())
    except FileNotFoundError:  # that by which they are listed
        return "gone"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeNode]:
    """A node of eight GPUs; when the file is done it holds nothing, and neither does this process."""
    folder: Path = tmp_path_factory.mktemp("node")
    node = FakeNode(folder, "hgx-h100")
    warm = node.claim("warm", *range(len(node.gpus)))
    node.prepare(warm)
    node.unprepare(warm)
    before = used()
    yield node
    # A cluster that outlives single tests may run in this process, and opens sockets for a moment.
    eventually("it uses no more than before", used, lambda now: not is_more(now, before))
    assert_nothing_is_left(node)
    node.stop()


def assert_nothing_is_left(node: FakeNode) -> None:
    """No claim holds anything, no spec, no daemon, no partition, and no unfinished file is there."""
    assert [entry for entry in node.journal.entries() if entry.holds] == []
    assert node.store.uids() == ()
    assert node.mps.running == {}
    assert list((node.boot_files / "sharing").iterdir()) == []
    assert [name for name in os.listdir(node.boot_files / "journal") if name.startswith(".tmp-")] == []
