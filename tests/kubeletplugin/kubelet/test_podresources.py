"""The kubelet's list of pod resources tells which of our devices containers hold."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore

import grpc
import pytest

from kubeletplugin.kubelet.podresources import (
    RECENT_SECONDS,
    SharedList,
    containers_by_device,
    devices_in_use,
    given_by_device_plugins,
    list_pods,
)
from proto import podresources_v1_pb2 as pb
from tests.eventually import WAIT_SECONDS, eventually
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.plugin import ContainerName, PodResourcesUnavailable, SocketServer

DRIVER = "gpu.nvidia.com"


@contextmanager
def kubelet_listing(answer: Callable[[], pb.ListPodResourcesResponse]) -> Iterator[Path]:
    """A kubelet's pod-resources socket that answers List with what ``answer`` gives."""

    def list_all(
        _request: pb.ListPodResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        return answer()

    method = grpc.unary_unary_rpc_method_handler(
        list_all,
        request_deserializer=pb.ListPodResourcesRequest.FromString,
        response_serializer=pb.ListPodResourcesResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
    with short_folder() as folder, ThreadPoolExecutor(2) as pool:
        server = SocketServer(folder / "kubelet.sock", [handler], pool)
        server.start()
        try:
            yield server.path
        finally:
            server.stop(grace_seconds=0)


def container(*held: tuple[str, str]) -> pb.ContainerResources:
    """A container that holds one claim with devices, each a driver and a qualified CDI name."""
    resources = [
        pb.ClaimResource(driver_name=driver, cdi_devices=[pb.CDIDevice(name=name)]) for driver, name in held
    ]
    claim = pb.DynamicResource(claim_namespace="a", claim_name="train", claim_resources=resources)
    return pb.ContainerResources(dynamic_resources=[claim])


def test_devices_of_our_driver_and_their_containers_are_told_by_name_of_all_pods() -> None:
    ours, other = (DRIVER, "k8s.gpu.nvidia.com/claim=u1-gpu-0"), ("nic.example.com", "example.com/nic=u1")

    def named(name: str, *held: tuple[str, str]) -> pb.ContainerResources:
        found = container(*held)
        found.name = name
        return found

    without_cdi = pb.DynamicResource(claim_name="x", claim_resources=[pb.ClaimResource(driver_name=DRIVER)])
    bare = pb.ContainerResources(dynamic_resources=[without_cdi])
    one = [named("a", ours, other), named("b"), named("c", ours), bare]
    pods = {"one": one, "two": [named("a", ours)]}
    answer = pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(name=name, namespace="team", containers=found) for name, found in pods.items()
        ]
    )
    with kubelet_listing(lambda: answer) as socket:
        assert devices_in_use(socket, DRIVER) == {"u1-gpu-0"}
        users = {ContainerName("team", pod, name) for pod, name in (("one", "a"), ("one", "c"), ("two", "a"))}
        assert containers_by_device(list_pods(socket), DRIVER) == {"u1-gpu-0": users}


def test_a_list_larger_than_four_mebibytes_is_read() -> None:
    answer = pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(name="x" * 1000, containers=[container((DRIVER, "vendor/class=u1-gpu-0"))])
        ]
        * 5000
    )
    with kubelet_listing(lambda: answer) as socket:
        assert devices_in_use(socket, DRIVER, timeout_seconds=WAIT_SECONDS) == {"u1-gpu-0"}


def test_an_absent_kubelet_is_a_retryable_error_that_names_the_socket() -> None:
    with short_folder() as folder, pytest.raises(PodResourcesUnavailable, match=str(folder)) as caught:
        devices_in_use(folder / "kubelet.sock", DRIVER)
    assert caught.value.retryable


def test_a_kubelet_that_hangs_is_given_up_after_the_timeout() -> None:
    release = threading.Event()

    def hang() -> pb.ListPodResourcesResponse:
        release.wait(WAIT_SECONDS)
        return pb.ListPodResourcesResponse()

    with kubelet_listing(hang) as socket:
        with pytest.raises(PodResourcesUnavailable, match="DEADLINE_EXCEEDED"):
            devices_in_use(socket, DRIVER, timeout_seconds=0.05)
        release.set()


def test_devices_of_device_plugins_are_told_by_the_prefix_of_their_resource() -> None:
    given = (
        ("nvidia.com/gpu", ["GPU-1", "GPU-2"]),
        ("nvidia.com/mig-1g.10gb", ["MIG-1"]),
        ("amd.com/gpu", ["A"]),
    )
    devices = [pb.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in given]
    pods = [pb.PodResources(containers=[pb.ContainerResources(devices=devices)])]
    with kubelet_listing(lambda: pb.ListPodResourcesResponse(pod_resources=pods)) as socket:
        assert given_by_device_plugins(list_pods(socket), "nvidia.com/") == {"GPU-1", "GPU-2", "MIG-1"}


def listed(number: int) -> pb.ListPodResourcesResponse:
    return pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name=str(number))])


class Slow:
    """A kubelet that answers when a test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked = Semaphore(0)
        self.answers = Semaphore(0)

    def __call__(self) -> pb.ListPodResourcesResponse:
        self.calls += 1
        number = self.calls
        self.asked.release()
        assert self.answers.acquire(timeout=10)
        if number == 2:
            raise PodResourcesUnavailable("rejected by rate limit")
        return listed(number)


def test_many_that_ask_at_once_are_one_call_that_began_after_they_asked() -> None:
    kubelet = Slow()
    shared = SharedList(kubelet)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(shared.now)
        assert kubelet.asked.acquire(timeout=10)
        others = [pool.submit(shared.now) for _ in range(19)]
        eventually("all wait", lambda: len(shared._changed._waiters), lambda waiting: waiting == 19)  # type: ignore[attr-defined]  # noqa: SLF001 - who waits shows nowhere else
        kubelet.answers.release(2)
        assert first.result(10) == listed(1)
        for other in others:
            with pytest.raises(PodResourcesUnavailable):
                other.result(10)
    assert kubelet.calls == 2

    kubelet.answers.release()
    assert shared.now() == listed(3)


def test_who_looks_from_time_to_time_takes_what_another_has_asked_for() -> None:
    seconds, calls = [100.0], [0]

    def ask() -> pb.ListPodResourcesResponse:
        calls[0] += 1
        if calls[0] == 2:
            raise PodResourcesUnavailable("rejected by rate limit")
        return listed(calls[0])

    shared = SharedList(ask, lambda: seconds[0])
    assert shared.now() == shared.recent() == listed(1)
    seconds[0] += RECENT_SECONDS
    for _ in range(2):
        with pytest.raises(PodResourcesUnavailable):
            shared.recent()
    assert shared.now() == listed(3)
