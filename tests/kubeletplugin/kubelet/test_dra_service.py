"""Each claim of a call is answered by itself."""

import io
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import structlog

from driver.process.log import configure
from kubeletplugin.kubelet.dra_service import DraService, top_level_requests
from kubeletplugin.kubelet.wire.claim_call import Call
from proto import dra_v1_pb2 as v1
from tests.clusters import Metrics
from tests.eventually import WAIT_SECONDS
from tests.gpus import ClaimBlocked, ClaimRefused
from tests.kubeletplugin.fake_kubelet import DRA_V1, FakeClaims, FakeKubelet, Plugin, claim_of
from tests.plugin import ClaimRef, PreparedDevice


def a_call() -> Call:
    return Call(started_ns=0, is_active=lambda: True, remaining_seconds=lambda: 45.0)


def counted(metrics: Metrics, operation: str, outcome: str) -> float | None:
    return metrics.registry.get_sample_value(
        "gpu_dra_operations_total", {"operation": operation, "outcome": outcome}
    )


def test_a_prepared_claim_is_answered_with_its_devices(plugin: Plugin, kubelet: FakeKubelet) -> None:
    device = v1.Device(
        request_names=["gpu"],
        pool_name="node/gpu",
        device_name="gpu-0",
        cdi_device_ids=["k8s.gpu.nvidia.com/claim=x"],
        share_id="share",
    )
    assert kubelet.prepare("train") == {"uid-train": v1.NodePrepareResourceResponse(devices=[device])}
    assert list(plugin.claims.prepared) == ["uid-train"]
    plugin.claims.devices = (PreparedDevice(("gpu",), "p", "d", ()),)
    assert not kubelet.prepare("other")["uid-other"].devices[0].HasField("share_id")


def test_a_call_says_when_its_kubelet_registered_the_plugin(plugin: Plugin, kubelet: FakeKubelet) -> None:
    """A kubelet that began after a claim was prepared may have forgotten the claim."""
    calls: list[Call] = []
    plugin.claims.before = lambda _claim, call: calls.append(call)

    kubelet.prepare("early")
    for _ in range(2):
        plugin.register()
        kubelet.prepare("train")

    before, first, again = calls
    assert before.registered_ns == 0
    assert before.started_ns < first.registered_ns < first.started_ns < again.registered_ns


def test_unpreparing_answers_each_claim(plugin: Plugin, kubelet: FakeKubelet) -> None:
    kubelet.prepare("a", "b")
    plugin.claims.failures["b"] = ClaimBlocked("a container uses it")
    assert kubelet.unprepare("a", "b") == {"uid-a": "", "uid-b": "a container uses it (retryable)"}
    assert list(plugin.claims.prepared) == ["uid-b"]


def test_a_failing_claim_leaves_the_others_alone(plugin: Plugin, kubelet: FakeKubelet) -> None:
    plugin.claims.failures = {
        "refused": ClaimRefused("claim team/refused is not allocated", "delete the pod"),
        "broken": KeyError("a fault of ours"),
    }
    answers = kubelet.prepare("broken", "good", "refused")
    assert answers["uid-good"].devices[0].device_name == "gpu-0"
    assert answers["uid-refused"].error == "claim team/refused is not allocated: delete the pod (permanent)"
    assert "internal error in claim team/broken: KeyError" in answers["uid-broken"].error
    outcomes = ("ok", "permanent", "internal")
    assert [counted(plugin.metrics, "prepare", word) for word in outcomes] == [1, 1, 1]


def test_an_internal_error_names_the_operation_whose_traceback_is_in_the_log(plugin: Plugin) -> None:
    log = io.StringIO()
    configure("warning", log)
    plugin.claims.failures["broken"] = KeyError("a fault of ours")
    with FakeKubelet(plugin.service_socket) as kubelet:
        error = kubelet.prepare("broken")["uid-broken"].error
    line = json.loads(log.getvalue())
    structlog.reset_defaults()
    assert f"op {line['op']} " in error
    assert (line["namespace"], line["claim"], line["uid"]) == ("team", "broken", "uid-broken")
    assert "KeyError: 'a fault of ours'" in line["exception"]


def test_claims_of_one_call_are_prepared_at_the_same_time(plugin: Plugin, kubelet: FakeKubelet) -> None:
    meeting = threading.Barrier(4)

    def meet(_claim: ClaimRef, _call: Call) -> None:
        meeting.wait(WAIT_SECONDS)

    plugin.claims.before = meet
    answers = kubelet.prepare("a", "b", "c", "d")
    assert {entry.error for entry in answers.values()} == {""}


def test_a_claim_is_in_flight_before_its_work_begins(plugin: Plugin, kubelet: FakeKubelet) -> None:
    seen: list[float | None] = []
    plugin.claims.before = lambda _claim, _call: seen.append(
        plugin.metrics.registry.get_sample_value("gpu_dra_operations_in_flight", {"operation": "prepare"})
    )
    kubelet.prepare("a")
    assert seen == [1]


def test_a_time_of_day_that_is_set_during_a_call_moves_no_deadline(
    plugin: Plugin, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []
    time_of_day = time.time

    def set_it(_claim: ClaimRef, call: Call) -> None:
        monkeypatch.setattr(time, "time", lambda: time_of_day() + 3600)
        left.append(call.remaining_seconds())

    plugin.claims.before = set_it
    assert kubelet.prepare("a")["uid-a"].error == ""
    assert 0 < left[0] <= WAIT_SECONDS + 1


def test_the_call_says_when_the_kubelet_gave_up(plugin: Plugin) -> None:
    arrived, given_up = threading.Event(), threading.Event()

    def wait_until_given_up(_claim: ClaimRef, call: Call) -> None:
        arrived.set()
        while call.is_active():
            if plugin.service.stop_event.wait(0.001):
                return
        given_up.set()

    plugin.claims.before = wait_until_given_up
    request = v1.NodePrepareResourcesRequest(claims=[claim_of("a")])
    method = f"{DRA_V1}/NodePrepareResources"
    with (
        FakeKubelet(plugin.service_socket) as kubelet,
        kubelet.stream(method, request, v1.NodePrepareResourcesResponse),
    ):
        assert arrived.wait(WAIT_SECONDS)
    assert given_up.wait(WAIT_SECONDS)


TWO = ClaimRef("n", "a", "1"), ClaimRef("n", "b", "2")


class FinishingB(ThreadPoolExecutor):
    """Has finished claim b before it takes another."""

    def submit(self, *work: Any) -> Future[Any]:  # type: ignore[override]  # the types do not matter here
        future = super().submit(*work)
        if TWO[1] in work:
            future.exception(WAIT_SECONDS)
        return future


def test_a_claim_that_takes_too_long_goes_on_and_the_others_of_its_call_are_answered_in_time() -> None:
    executor, claims = FinishingB(2), FakeClaims()
    go_on = threading.Event()

    def wait(claim: ClaimRef, _call: Call) -> None:
        assert claim.uid == "2" or go_on.wait(WAIT_SECONDS)

    claims.before = wait
    call = replace(a_call(), remaining_seconds=lambda: 1.0)

    answers = DraService(claims, executor, Metrics()).prepare(TWO, call)
    go_on.set()
    executor.shutdown()

    assert "prepare of claim n/a is still at work, and goes on: it is tried again" in answers["1"]
    assert not isinstance(answers["2"], str)
    assert sorted(claims.prepared) == ["1", "2"]


def test_a_claim_that_waits_for_a_worker_when_the_plugin_stops_is_told_so() -> None:
    executor, claims = ThreadPoolExecutor(1), FakeClaims()

    def stop_executor(_claim: ClaimRef, _call: Call) -> None:
        executor.shutdown(wait=False, cancel_futures=True)

    claims.before = stop_executor
    answers = DraService(claims, executor, Metrics()).prepare(TWO, a_call())
    assert answers["2"] == "claim n/b was not started, since the plugin is stopping (retryable)"


def test_requests_lose_their_sub_requests_and_are_named_once() -> None:
    assert top_level_requests(("a/large", "a/small", "b", "a")) == ["a", "b"]
    assert top_level_requests(()) == []
