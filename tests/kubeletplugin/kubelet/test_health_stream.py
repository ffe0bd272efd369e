"""The kubelet hears of the health of all devices, in both versions, for as long as it listens."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import grpc
import pytest

from driver.health.verdict import Health, Word
from kubeletplugin.kubelet.health_stream import answer
from kubeletplugin.kubelet.wire.health_board import DeviceHealth
from kubeletplugin.kubelet.wire.streams import MAX_STREAMS
from proto import dra_health_v1_pb2 as v1
from proto import dra_health_v1alpha1_pb2 as v1alpha1
from tests.kubeletplugin.fake_kubelet import FakeKubelet, Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

V1 = "/v1.DRAResourceHealth/NodeWatchResources"
V1ALPHA1 = "/v1alpha1.DRAResourceHealth/NodeWatchResources"
WELL = DeviceHealth("node/gpu", "gpu-0", Health("Healthy"), 1_700_000_000)
ILL = DeviceHealth("node/gpu", "gpu-0", Health("Unhealthy", "XID 79: fell off the bus"), 1_700_000_060)


def watch(kubelet: FakeKubelet) -> AbstractContextManager[Iterator[v1.NodeWatchResourcesResponse]]:
    return kubelet.stream(V1, v1.NodeWatchResourcesRequest(), v1.NodeWatchResourcesResponse)


def test_the_list_comes_at_once_and_at_each_change(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.board.update((WELL,))
    with watch(kubelet) as answers:
        assert next(answers) == answer((WELL,), v1)
        plugin.board.update((ILL,))
        assert next(answers) == answer((ILL,), v1)


def test_v1alpha1_is_told_the_same(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.board.update((ILL,))
    request = v1alpha1.NodeWatchResourcesRequest()
    with kubelet.stream(V1ALPHA1, request, v1alpha1.NodeWatchResourcesResponse) as answers:
        device = next(answers).devices[0]
    assert (device.device.pool_name, device.device.device_name) == ("node/gpu", "gpu-0")
    assert (device.health, device.message) == (v1alpha1.UNHEALTHY, "XID 79: fell off the bus")


@pytest.mark.parametrize(("word", "number"), [("Unknown", 0), ("Healthy", 1), ("Unhealthy", 2)])
def test_each_state_has_its_number_on_the_wire(word: Word, number: int) -> None:
    device = DeviceHealth("p", "d", Health(word, "why"), 7)
    for message in (answer((device,), v1), answer((device,), v1alpha1)):
        sent = message.devices[0]
        assert sent.health == number
        assert (sent.last_updated_time, sent.health_check_timeout_seconds, sent.message) == (7, 30, "why")


def test_one_stream_too_many_is_refused_and_calls_still_go_through(
    plugin: Plugin, kubelet: FakeKubelet
) -> None:
    plugin.board.update((WELL,))
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            next(stack.enter_context(watch(kubelet)))
        with watch(kubelet) as refused, pytest.raises(grpc.RpcError) as caught:
            next(refused)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert kubelet.prepare("train")["uid-train"].error == ""


def test_the_streams_end_when_the_plugin_stops(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.board.update((WELL,))
    with watch(kubelet) as answers:
        next(answers)
        plugin.service.stop()
        assert list(answers) == []
