"""A claim that the API no longer has gives way to one that waits, unless a container has its devices."""

import pytest

from kubeletplugin.claims.reconciler import ASK_SECONDS, CERTAIN_SECONDS
from tests.gpus import ApiError
from tests.kubeletplugin.fake_node import FakeNode

MACHINE = "a30-quad"


class Clock:
    """Stands until a test moves it."""

    def __init__(self, node: FakeNode) -> None:
        self.seconds = 100.0
        node.reconciler._clock = lambda: self.seconds  # noqa: SLF001 - the one clock that the test moves


def test_a_waiting_claim_gets_what_a_claim_had_that_is_gone_for_a_while(node: FakeNode) -> None:
    """Seen after a kubelet outage: else it gets it when the kubelet has looked for itself and comes back."""
    gone, node.patience_seconds = node.claim("gone", 1), 5.0
    node.restart()
    clock = Clock(node)
    node.prepare(gone)
    del node.api["team", "gone"]

    def wait(_complaint: str) -> None:
        clock.seconds += CERTAIN_SECONDS

    node.on_complaint = wait
    node.prepared("next", 1)

    assert len(node.complaints) == 1
    assert not node.spec_path(gone).exists()


def test_a_claim_in_the_way_is_asked_about_every_few_seconds_however_many_wait(node: FakeNode) -> None:
    clock, gone = Clock(node), node.claim("gone", 1)
    node.prepare(gone)
    del node.api["team", "gone"]
    asked: list[float] = []
    node.before_get = lambda: asked.append(clock.seconds)

    while not node.reconciler.release_unneeded(gone.uid):
        assert not node.reconciler.release_unneeded(gone.uid)
        clock.seconds += ASK_SECONDS / 4

    assert asked == [100.0 + step * ASK_SECONDS for step in range(int(CERTAIN_SECONDS / ASK_SECONDS) + 1)]


@pytest.mark.parametrize("who", ["the API server", "a container", "nobody answers"])
def test_a_claim_in_the_way_stays_while_somebody_needs_it_or_does_not_say(node: FakeNode, who: str) -> None:
    clock, ref = Clock(node), node.claim("train", 1)
    (device,) = node.prepare(ref)
    if who != "the API server":
        del node.api["team", "train"]
    if who == "a container":
        node.use(device)

    for _ in range(20):
        if who == "nobody answers":
            node.api_failures = [ApiError("the API server is silent")]
        assert not node.reconciler.release_unneeded(ref.uid)
        clock.seconds += ASK_SECONDS


def test_a_claim_in_the_way_that_was_wanted_again_meanwhile_is_gone_anew(node: FakeNode) -> None:
    clock, ref = Clock(node), node.claim("train", 1)
    node.prepare(ref)
    stored = node.api.pop(("team", "train"))
    node.reconciler.release_unneeded(ref.uid)
    node.api["team", "train"] = stored
    clock.seconds += CERTAIN_SECONDS
    node.reconciler.release_unneeded(ref.uid)
    del node.api["team", "train"]
    clock.seconds += CERTAIN_SECONDS

    assert not node.reconciler.release_unneeded(ref.uid)


@pytest.mark.parametrize("way", ["the pass", "a claim that waits"])
def test_what_a_container_has_from_a_deleted_claim_is_blocked_until_it_ends(node: FakeNode, way: str) -> None:
    """The scheduler takes it for free, and would send pod after pod to it."""
    clock, ref = Clock(node), node.claim("train", 1)
    (device,) = node.prepare(ref)
    del node.api["team", "train"]
    node.use(device)

    if way == "the pass":
        node.reconciler.run_once()
    else:
        node.reconciler.release_unneeded(ref.uid)

    (blocked,) = node.watch.state().blocked
    assert (blocked.pci, blocked.span, blocked.reason) == (node.gpus[1], None, "deleted-claim")
    assert "team/train" in blocked.message
    node.in_use.clear()
    clock.seconds += CERTAIN_SECONDS
    assert node.reconciler.run_once() == (ref.uid,)
    assert node.watch.state().blocked == ()
