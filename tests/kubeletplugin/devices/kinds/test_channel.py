"""Claims for IMEX channels: one for a gang, prepared on each node of it, beside the claims for GPUs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletplugin.devices.host.imex import ImexNotReady
from tests.gpus import ClaimBlocked, ClaimRefused, DeviceHeld
from tests.kubeletplugin.channel_node import CLIQUE, OTHER_CLIQUE, ChannelNode
from tests.kubeletplugin.fake_node import Crash
from tests.plugin import PreparedDevice


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[ChannelNode]:
    rack = ChannelNode(tmp_path)
    yield rack
    rack.channels.peers.close()
    rack.node.stop()


def test_gangs_have_a_channel_each_and_their_containers_its_device_node(rack: ChannelNode) -> None:
    first, second = rack.claim("gang", 1), rack.claim("other", 2)

    (prepared,) = rack.prepare(first)
    rack.prepare(second)

    cdi = f"k8s.channels.gpu.nvidia.com/claim={first.uid}-channel-1"
    assert prepared == PreparedDevice(("channel",), CLIQUE, "channel-1", (cdi,))
    spec = rack.spec(first)
    (device,) = spec["devices"]
    node = {"path": "/dev/nvidia-caps-imex-channels/channel1", "type": "c", "major": 511, "minor": 1}
    assert spec["kind"] == "k8s.channels.gpu.nvidia.com/claim"
    assert device["containerEdits"]["deviceNodes"] == [{**node, "permissions": "rw"}]
    assert "deviceNodes" not in spec["containerEdits"], "GPUs and control nodes come with another claim"
    assert rack.spec(second)["devices"][0]["containerEdits"]["deviceNodes"][0]["minor"] == 2
    assert rack.node.journal.entries() == ()


def test_a_channel_goes_to_one_gang_at_a_time(rack: ChannelNode) -> None:
    first, second = rack.claim("gang", 1), rack.claim("other", 1)
    rack.prepare(first)

    with pytest.raises(DeviceHeld):
        rack.prepare(second)

    rack.unprepare(first)
    assert rack.prepare(second)[0].device == "channel-1"


def test_a_claim_with_gpus_and_a_channel_is_prepared_and_let_go_by_both_drivers(rack: ChannelNode) -> None:
    ref = rack.claim("both", 1, CLIQUE, "gpu-0008-01-00-0")

    assert [one.device for one in rack.node.prepare(ref)] == ["gpu-0008-01-00-0"]
    assert [one.device for one in rack.prepare(ref)] == ["channel-1"]
    rack.restart()
    rack.node.unprepare(ref)
    assert [entry.uid for entry in rack.channels.journal.held()] == [ref.uid]
    rack.unprepare(ref)

    assert (rack.node.journal.held(), rack.channels.journal.held()) == ((), ())
    assert list(rack.node.cdi.iterdir()) == []


def test_neither_driver_hands_out_what_the_other_one_has(rack: ChannelNode) -> None:
    ref = rack.claim("gang", 1)
    (result,) = rack.node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
    result["device"] = "gpu-0008-01-00-0"
    with pytest.raises(ClaimRefused, match="which this node does not offer"):
        rack.prepare(ref)

    ref = rack.node.claim_devices("train", "channel-1")
    with pytest.raises(ClaimRefused, match="which this node does not offer"):
        rack.node.prepare(ref)
    assert list(rack.node.cdi.iterdir()) == []


def test_what_is_missing_is_waited_for_and_a_claim_of_another_clique_is_refused_for_good(
    rack: ChannelNode,
) -> None:
    ref = rack.claim("gang", 1)
    rack.node.imex.why_not = "it says INITIALIZING"
    with pytest.raises(ImexNotReady, match="INITIALIZING"):
        rack.prepare(ref)
    rack.node.clique = None
    with pytest.raises(ClaimBlocked, match="tells no NVLink clique"):
        rack.prepare(ref)
    with pytest.raises(ClaimBlocked, match="tells no NVLink clique"):
        rack.prepare(ref)
    rack.node.clique = OTHER_CLIQUE
    with pytest.raises(ClaimRefused, match=f"in the NVLink clique {OTHER_CLIQUE}, but"):
        rack.prepare(ref)
    assert rack.channels.journal.held() == ()


def test_a_gang_keeps_its_channel_while_the_daemon_or_the_fabric_is_away(rack: ChannelNode) -> None:
    ref = rack.claim("gang", 1)
    first = rack.prepare(ref)
    rack.node.imex.why_not, rack.node.clique = "it is down", None
    rack.restart()

    rack.node.api.clear()
    assert rack.prepare(ref) == first
    assert rack.unprepare(ref) is None
    assert list(rack.node.cdi.iterdir()) == []


@pytest.mark.parametrize("step", ["committed", "metadata written", "spec written"])
def test_a_prepare_that_ends_at_any_step_leaves_no_channel_held(rack: ChannelNode, step: str) -> None:
    ref = rack.claim("gang", 1)
    rack.node.crash_after = step
    with pytest.raises(Crash):
        rack.prepare(ref)
    rack.restart()

    assert rack.unprepare(ref) is None
    assert rack.channels.journal.held() == ()
    assert list(rack.node.cdi.iterdir()) == []
    assert rack.prepare(rack.claim("other", 1))


def test_a_gang_that_is_gone_is_let_go_once_no_container_has_its_channel(rack: ChannelNode) -> None:
    ref = rack.claim("gang", 1)
    (prepared,) = rack.prepare(ref)
    del rack.node.api[ref.namespace, ref.name]
    rack.node.in_use = {f"{ref.uid}-channel-1"}
    assert rack.channels.reconciler.run_once() == ()
    rack.node.in_use = set()
    assert rack.channels.reconciler.run_once() == (ref.uid,)
    assert prepared.device == "channel-1"
