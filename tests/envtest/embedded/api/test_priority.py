"""Pods get the priority of their class when they are created, as Kubernetes' admission gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, ask, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        add(running, "urgent", value=100, preemptionPolicy="Never")
        yield running


def add(server: EmbeddedApiServer, name: str, **fields: Any) -> None:
    server.create(CLASSES, {"metadata": {"name": name}, **fields})


def given(server: EmbeddedApiServer, **spec: Any) -> tuple[Any, ...]:
    stored = server.create(PODS, pod("p", **spec))["spec"]
    return stored.get("priorityClassName"), stored["priority"], stored["preemptionPolicy"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        ({"priority": 5}, "priority (5) must not be provided in pod spec; its PriorityClass gives 0"),
        (
            {"priorityClassName": "urgent", "preemptionPolicy": "PreemptLowerPriority"},
            "preemptionPolicy (PreemptLowerPriority) must not be provided in pod spec",
        ),
    ],
)
def test_a_pod_does_not_choose_its_priority(
    server: EmbeddedApiServer, spec: dict[str, Any], words: str
) -> None:
    answer = ask(server, "POST", PODS, pod("p", **spec))

    assert answer.code == 403
    assert answer.body["message"].startswith(f'pods "p" is forbidden: {words}')


def test_a_pod_that_is_replaced_without_what_its_class_gave_keeps_its_priority(
    server: EmbeddedApiServer,
) -> None:
    given(server, priorityClassName="urgent")

    changed = ask(server, "GET", f"{PODS}/p").body
    for field in ("priority", "preemptionPolicy"):
        del changed["spec"][field]
    changed["metadata"]["labels"] = {"app": "a"}
    answer = ask(server, "PUT", f"{PODS}/p", changed)

    assert (answer.code, answer.body["spec"]["priority"]) == (200, 100)
    assert answer.body["metadata"]["labels"] == {"app": "a"}


def test_without_a_class_a_pod_has_none_or_the_default_one(server: EmbeddedApiServer) -> None:
    assert given(server) == (None, 0, "PreemptLowerPriority")
    server.delete(f"{PODS}/p")
    add(server, "usual", value=7, globalDefault=True)
    assert given(server) == ("usual", 7, "PreemptLowerPriority")
