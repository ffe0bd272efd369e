"""Claims for IMEX channels: one for a gang, prepared on each node of it, beside the claims for GPUs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpus import ClaimRefused
from tests.kubeletplugin.channel_node import ChannelNode


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[ChannelNode]:
    rack = ChannelNode(tmp_path)
    yield rack
    rack.channels.peers.close()
    rack.node.stop()


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
