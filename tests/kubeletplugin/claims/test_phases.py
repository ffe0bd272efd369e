"""How long the phases of a prepare and an unprepare took is told, each once where it belongs."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from driver.errors import ClaimRefused
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.claims.ports import Timing
from tests.eventually import eventually
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


def test_a_prepare_is_told_in_its_phases(node: FakeNode, heard: Heard) -> None:
    node.prepare(node.claim("train", 0))

    assert counted(heard) == {
        **dict.fromkeys(("claim", "locks", "locate", "hardware", "sharing", "spec", "journal", "files"), 1)
    }


def test_a_repeated_prepare_waits_for_its_lock_and_checks_the_spec(node: FakeNode, heard: Heard) -> None:
    ref = node.claim("train", 0)
    node.prepare(ref)
    heard.clear()
    node.prepare(ref)

    assert counted(heard) == {"locks": 1, "spec": 1}


def test_an_unprepare_takes_back_and_writes_a_tombstone(node: FakeNode, heard: Heard) -> None:
    ref = node.claim("train", 0)
    node.prepare(ref)
    heard.clear()
    node.unprepare(ref)

    assert counted(heard) == {"locks": 2, "sharing": 1, "hardware": 1, "journal": 1}


def test_the_wait_for_another_claim_of_the_gpu_is_in_the_locks_alone(node: FakeNode, heard: Heard) -> None:
    ref = node.claim("train", 0)
    prepare = threading.Thread(target=node.prepare, args=(ref,))
    with KeyedLocks(node.folder / "locks").holding([gpu_key(str(node.gpus[0]))], 5):
        prepare.start()
        eventually("the claim is read", lambda: "claim" in heard)
        assert "locks" not in heard, "it still waits"
    prepare.join(10)

    assert counted(heard)["locks"] == 1


def test_a_phase_that_fails_is_told_too(node: FakeNode, heard: Heard) -> None:
    node.api_failures = [ClaimRefused("no such claim")]
    with pytest.raises(ClaimRefused):
        node.prepare(node.claim("train", 0))

    assert counted(heard) == {"claim": 1}
