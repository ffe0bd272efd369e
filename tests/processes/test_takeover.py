"""What one instance of the driver has prepared the next one takes over, as in an update or a rollback."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from tests.processes.every_kind import KINDS, put_claim
from tests.processes.two_instances import EARLIER, LATER, TwoInstances, two_instances


@pytest.fixture
def both() -> Iterator[TwoInstances]:
    with two_instances() as node:
        yield node


def nodes_of(specs: Mapping[str, tuple[int, bytes]]) -> dict[str, dict[str, list[str]]]:
    """The device nodes that CDI specs give, by file and device; the driver's files each version chooses."""
    return {
        file: {
            device["name"]: [node["path"] for node in device["containerEdits"].get("deviceNodes", ())]
            for device in json.loads(data)["devices"]
        }
        for file, (_, data) in specs.items()
    }


def test_the_next_instance_answers_for_claims_of_every_kind_and_takes_them_back(both: TwoInstances) -> None:
    claims = [put_claim(both.node, kind) for kind in KINDS]
    with ExitStack() as started:
        started.enter_context(both.supervisor())
        plugin = started.enter_context(both.plugin(EARLIER))
        answers = both.prepare(EARLIER, *claims)
        gpus, daemons, specs, records = both.gpus(), both.daemons(), both.specs(), both.records()
        assert len(daemons) == len(
            [kind for kind in KINDS if "mps" in kind.name or kind.name == "fractional"]
        )
        assert len(specs) == len(KINDS)

        started.enter_context(both.plugin(LATER))
        assert both.prepare(LATER, *claims) == answers
        assert plugin.stop() == 0
        assert both.prepare(LATER, *claims) == answers
        assert (both.gpus(), both.daemons()) == (gpus, daemons)
        assert nodes_of(both.specs()) == nodes_of(specs)
        assert both.records() == records
        assert set(both.states().values()) == {"prepared"}

        both.unprepare(LATER, *claims)
        both.assert_all_is_put_back()
