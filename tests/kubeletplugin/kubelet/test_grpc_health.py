"""The plugin says that it serves only while all of its parts are up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from driver.health.verdict import Health
from kubeletplugin.kubelet.grpc_health import Serving
from kubeletplugin.kubelet.health_stream import HEALTH_V1
from kubeletplugin.kubelet.plugin_sockets import READY_PART, SERVICE_PART
from kubeletplugin.kubelet.wire.health_board import DeviceHealth
from proto import dra_health_v1_pb2
from proto import grpc_health_v1_pb2 as pb
from tests.kubeletplugin.fake_kubelet import GRPC_HEALTH, FakeKubelet, Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

Response = pb.HealthCheckResponse


def watch(kubelet: FakeKubelet, service: str) -> AbstractContextManager[Iterator[Response]]:
    return kubelet.stream(f"{GRPC_HEALTH}/Watch", pb.HealthCheckRequest(service=service), Response)


def test_open_sockets_alone_do_not_serve(plugin: Plugin, kubelet: FakeKubelet) -> None:
    assert kubelet.serving() == "NOT_SERVING"
    plugin.sockets.serving.up(READY_PART)
    assert kubelet.serving("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin") == "SERVING", "it is alive"
    assert kubelet.serving() == "NOT_SERVING", "the kubelet has not registered it"
    plugin.register()
    assert kubelet.serving() == "SERVING"
    plugin.sockets.serving.down(SERVICE_PART)
    assert kubelet.serving() == "NOT_SERVING"


def test_a_broken_health_stream_means_that_the_kubelet_is_away(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.register()
    plugin.sockets.serving.up(READY_PART)
    plugin.board.update((DeviceHealth("pool", "gpu", Health("Healthy"), 1),))
    with watch(kubelet, "") as answers:
        assert next(answers).status == Response.SERVING
        with kubelet.stream(
            f"/{HEALTH_V1}/NodeWatchResources",
            dra_health_v1_pb2.NodeWatchResourcesRequest(),
            dra_health_v1_pb2.NodeWatchResourcesResponse,
        ) as devices:
            assert len(next(devices).devices) == 1
        assert next(answers).status == Response.NOT_SERVING
        plugin.register()
        assert next(answers).status == Response.SERVING


def test_both_sockets_answer_for_every_service_by_name(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.register()
    plugin.sockets.serving.up(READY_PART)
    with FakeKubelet(plugin.registration_socket) as probe:
        assert probe.serving() == "SERVING"
    assert kubelet.serving("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin") == "SERVING"
    listed = kubelet.call(f"{GRPC_HEALTH}/List", pb.HealthListRequest(), pb.HealthListResponse)
    assert set(listed.statuses) == {
        "",
        "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    }
    assert {answer.status for answer in listed.statuses.values()} == {Response.SERVING}


def test_a_service_that_nobody_knows_is_not_found(kubelet: FakeKubelet) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        kubelet.serving("unheard.of")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watch_follows_the_state_until_the_plugin_stops(plugin: Plugin, kubelet: FakeKubelet) -> None:
    with watch(kubelet, "") as answers:
        assert next(answers).status == Response.NOT_SERVING
        plugin.register()
        plugin.sockets.serving.up(READY_PART)
        assert next(answers).status == Response.SERVING
        plugin.service.stop()
        assert [answer.status for answer in answers] == [Response.NOT_SERVING]


def test_a_watch_of_an_unknown_service_says_so_once_and_stays_open(
    plugin: Plugin, kubelet: FakeKubelet
) -> None:
    with watch(kubelet, "unheard.of") as answers:
        assert next(answers).status == Response.SERVICE_UNKNOWN
        plugin.sockets.serving.up(READY_PART)
        plugin.service.stop()
        assert list(answers) == []


def test_every_part_counts() -> None:
    serving = Serving("a", "b")
    states = []
    for change, part in ((serving.up, "a"), (serving.up, "b"), (serving.up, "b"), (serving.down, "a")):
        change(part)
        states.append(serving.state.value)
    assert states == [False, True, True, False]


def test_what_is_closed_serves_no_more() -> None:
    serving = Serving("a")
    serving.close()
    serving.up("a")
    assert not serving.state.value
