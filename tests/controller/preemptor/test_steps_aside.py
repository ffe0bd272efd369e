"""It makes no room where the scheduler does."""

from typing import Any

import pytest

from controller.preemptor.steps_aside import SchedulerPreempts, Setting, is_making_room
from tests.clusters import Forbidden, Unreachable
from tests.gpus import ApiError

OTHERS = """\
# HELP kubernetes_feature_enabled [BETA] The stage and enablement of a k8s feature.
kubernetes_feature_enabled{name="DRAExtendedResource",stage=""} 1
"""


class Played:
    """The metrics of an API server, or why it does not tell them."""

    def __init__(self, text: str | ApiError) -> None:
        self._text = text

    def text(self, path: str) -> str:
        assert path == "/metrics"
        if isinstance(self._text, ApiError):
            raise self._text
        return self._text


def asked(text: str | ApiError, setting: Setting = "auto") -> SchedulerPreempts:
    found = SchedulerPreempts(Played(text), setting)  # type: ignore[arg-type] # it only needs this method
    found.ask()
    return found


GATE = f'{OTHERS}kubernetes_feature_enabled{{name="DRAPreemption",stage="BETA"}} '


@pytest.mark.parametrize(
    ("text", "setting", "steps"),
    [
        (f"{GATE}1\n", "auto", True),
        (f"{GATE}0\n", "auto", False),
        (OTHERS, "auto", False),
        (Forbidden("no"), "auto", False),
        (f"{GATE}1\n", "no", False),
        (OTHERS, "yes", True),
    ],
    ids=["on", "off", "a server without the gate", "no right to see it", "an admin says no", "or yes"],
)
def test_the_feature_gate_decides_unless_an_administrator_does(
    text: str | ApiError, setting: Setting, steps: bool
) -> None:
    found = asked(text, setting)

    assert bool(found.reason) == steps
    assert found.is_known


def test_nothing_is_known_until_the_server_answers() -> None:
    found = SchedulerPreempts(Played(Unreachable("no answer")), "auto")  # type: ignore[arg-type] # see asked
    with pytest.raises(Unreachable):
        found.ask()
    assert not found.is_known


def pod(priority: int, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"priority": priority},
        "status": status,
    }


def test_the_scheduler_makes_room_as_long_as_a_pod_that_it_evicted_is_there() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    evicted = pod(1, conditions=[told])
    other = pod(1, conditions=[{**told, "reason": "EvictionByEvictionAPI"}])

    assert is_making_room(pod(5), [other, evicted])
    assert not is_making_room(pod(5), [other])
    assert not is_making_room(pod(1), [evicted]), "it was not for this one"
    assert not is_making_room(pod(5), [{**evicted, "metadata": {}}]), "it is not ending"
