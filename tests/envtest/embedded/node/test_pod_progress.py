"""Which containers of a pod are started next, and its phase, are as the kubelet has them."""

import threading
from typing import Any

import pytest

from envtest.cdi import ContainerView
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.node.containers import Container, ContainerEnd
from envtest.embedded.node.pod_status import due, phase

RUNS = -1
"""Stands for a container that runs, where else its exit code stands."""


def pod(policy: str = "Always", initial: tuple[str, ...] = (), main: tuple[str, ...] = ("a", "b")) -> Any:
    """A pod; init containers whose names begin with ``side`` are sidecars."""
    first = [{"name": one, **({"restartPolicy": "Always"} if "side" in one else {})} for one in initial]
    containers = [{"name": one} for one in main]
    return {"spec": {"restartPolicy": policy, "initContainers": first, "containers": containers}}


def seen(of: Any, **codes: int) -> tuple[list[str], str]:
    """What is due and the phase, where these containers were started, with their exit codes."""
    log = ContainerLog(threading.Condition())

    def last(name: str) -> Container | None:
        if name not in codes:
            return None
        end = None if codes[name] == RUNS else ContainerEnd(codes[name], "", "", 0.0)
        return Container(name, name, 0, ContainerView(), "", "", log, end)

    return [one["name"] for one in due(of, last)], phase(of, last)


def test_all_containers_start_together_and_one_that_fails_keeps_no_other_back() -> None:
    assert seen(pod()) == (["a", "b"], "Pending")
    assert seen(pod(), a=RUNS) == (["b"], "Pending")
    assert seen(pod(), a=RUNS, b=RUNS) == ([], "Running")
    assert seen(pod(), a=128, b=RUNS) == (["a"], "Running")
    assert seen(pod(), a=128, b=128) == (["a", "b"], "Running"), "as the kubelet says where all start again"


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Always", 0, (["a"], "Running")),
        ("OnFailure", 1, (["a"], "Running")),
        ("OnFailure", 0, ([], "Succeeded")),
        ("Never", 0, ([], "Succeeded")),
        ("Never", 128, ([], "Failed")),
    ],
)
def test_the_policy_decides_whether_a_container_that_ended_starts_again(
    policy: str, code: int, expected: tuple[list[str], str]
) -> None:
    assert seen(pod(policy, main=("a",)), a=code) == expected


def test_a_pod_goes_on_while_one_of_its_containers_runs() -> None:
    assert seen(pod("Never"), a=1, b=RUNS) == ([], "Running")


def test_init_containers_end_one_after_the_other_and_then_the_others_start() -> None:
    two = pod(initial=("one", "two"))
    assert seen(two) == (["one"], "Pending")
    assert seen(two, one=RUNS) == ([], "Pending")
    assert seen(two, one=0) == (["two"], "Pending")
    assert seen(two, one=0, two=0) == (["a", "b"], "Pending")
    assert seen(two, one=0, two=0, a=RUNS, b=RUNS) == ([], "Running")


def test_an_init_container_that_fails_starts_again_or_ends_the_pod() -> None:
    assert seen(pod(initial=("one",)), one=1) == (["one"], "Pending")
    assert seen(pod("OnFailure", initial=("one",)), one=1) == (["one"], "Pending")
    assert seen(pod("Never", initial=("one",)), one=1) == ([], "Failed")


def test_a_sidecar_runs_beside_all_that_come_after_it_and_starts_again_always() -> None:
    one = pod("Never", initial=("side", "last"))
    assert seen(one) == (["side"], "Pending")
    assert seen(one, side=RUNS) == (["last"], "Pending")
    assert seen(one, side=0) == seen(one, side=0, last=RUNS) == (["side"], "Pending")
    assert seen(one, side=RUNS, last=0) == (["a", "b"], "Pending")
    assert seen(one, side=128, last=0, a=RUNS, b=RUNS) == (["side"], "Running")
    assert seen(one, side=RUNS, last=0, a=0, b=0) == ([], "Succeeded")
