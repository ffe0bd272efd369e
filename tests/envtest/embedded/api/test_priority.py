"""Pods get the priority of their class when they are created, as Kubernetes' admission gives it."""

from collections.abc import Iterator

import pytest

from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import PODS, ask, pod


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        urgent = {"metadata": {"name": "urgent"}, "value": 100, "preemptionPolicy": "Never"}
        running.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
        yield running


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
def test_a_pod_does_not_choose_its_priority(server: EmbeddedApiServer, spec: Object, words: str) -> None:
    answer = ask(server, "POST", PODS, pod("p", **spec))

    assert answer.code == 403
    assert answer.body["message"].startswith(f'pods "p" is forbidden: {words}')
