"""How long the phases of a prepare and an unprepare took is told, each once where it belongs."""

from collections import Counter

import pytest

from kubeletplugin.claims.ports import Timing
from tests.gpus import ClaimRefused
from tests.kubeletplugin.fake_node import FakeNode

Heard = dict[str, list[float]]


@pytest.fixture
def heard(node: FakeNode) -> Heard:
    """The seconds that were told of the node's claims, by phase."""
    found: Heard = {}
    node.timing = Timing(
        lambda phase, seconds: found.setdefault(phase, []).append(seconds),
        lambda seconds: found.setdefault("journal", []).append(seconds),
        lambda seconds: found.setdefault("files", []).append(seconds),
    )
    node.restart()
    found.clear()
    return found


def counted(heard: Heard) -> Counter[str]:
    return Counter({phase: len(seconds) for phase, seconds in heard.items()})


def test_each_phase_is_told_once_where_it_belongs(node: FakeNode, heard: Heard) -> None:
    ref = node.prepared("train", 0)
    phases = ("claim", "locks", "locate", "hardware", "sharing", "spec", "journal", "files")
    assert counted(heard) == dict.fromkeys(phases, 1)
    heard.clear()
    node.prepare(ref)
    assert counted(heard) == {"locks": 1, "spec": 1}, "a repeated one waits for its lock and checks the spec"
    heard.clear()
    node.unprepare(ref)
    assert counted(heard) == {"locks": 2, "sharing": 1, "hardware": 1, "journal": 1}
    heard.clear()
    node.api_failures = [ClaimRefused("no such claim")]
    with pytest.raises(ClaimRefused):
        node.prepare(ref)
    assert counted(heard) == {"claim": 1}, "one that fails is told too"
