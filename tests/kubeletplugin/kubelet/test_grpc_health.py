"""The plugin says that it serves while all of its parts are up, and how all devices are."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import grpc
import pytest

from driver.health.verdict import Word
from kubeletplugin.kubelet.health_stream import HEALTH_V1, answer
from kubeletplugin.kubelet.plugin_sockets import SERVICE_PART
from kubeletplugin.kubelet.wire.streams import MAX_STREAMS
from proto import dra_health_v1_pb2
from proto import dra_health_v1_pb2 as v1
from proto import dra_health_v1alpha1_pb2 as v1alpha1
from proto import grpc_health_v1_pb2 as pb
from tests.gpus import Health
from tests.kubeletplugin.fake_kubelet import GRPC_HEALTH, FakeKubelet, Plugin
from tests.plugin import READY_PART, DeviceHealth

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


V1 = "/v1.DRAResourceHealth/NodeWatchResources"
V1ALPHA1 = "/v1alpha1.DRAResourceHealth/NodeWatchResources"
WELL = DeviceHealth("node/gpu", "gpu-0", Health("Healthy"), 1_700_000_000)
ILL = DeviceHealth("node/gpu", "gpu-0", Health("Unhealthy", "XID 79: fell off the bus"), 1_700_000_060)


def devices(kubelet: FakeKubelet) -> AbstractContextManager[Iterator[v1.NodeWatchResourcesResponse]]:
    return kubelet.stream(V1, v1.NodeWatchResourcesRequest(), v1.NodeWatchResourcesResponse)


def test_the_list_comes_at_once_and_at_each_change(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.board.update((WELL,))
    with devices(kubelet) as answers:
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
            next(stack.enter_context(devices(kubelet)))
        with devices(kubelet) as refused, pytest.raises(grpc.RpcError) as caught:
            next(refused)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert kubelet.prepare("train")["uid-train"].error == ""
