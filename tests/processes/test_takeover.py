"""What one instance of the driver has prepared the next one takes over, as in an update or a rollback."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from grpc import RpcError

from tests.eventually import eventually
from tests.processes.every_kind import KINDS, put_claim
from tests.processes.two_instances import EARLIER, LATER, TwoInstances, kill, two_instances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PARTITION = next(kind for kind in KINDS if kind.name == "partition")


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


def test_the_next_instance_finishes_what_a_crash_has_cut_off(both: TwoInstances) -> None:
    claim = put_claim(both.node, PARTITION)
    with both.plugin(EARLIER) as plugin, ThreadPoolExecutor() as pool:
        both.node.machine.hang("create_compute_instance")
        call = pool.submit(both.node.prepare, claim, pod_uid=EARLIER.pod_uid)
        both.wait_for_state(PARTITION.uid, "preparing", lambda device: device["record"]["attempted"])
        eventually("the GPU instance is made", both.made_for_claims)
        kill(plugin)
        with pytest.raises(RpcError):
            call.result()
        both.node.machine.heal()
    half_made = both.made_for_claims()

    with both.plugin(LATER):
        both.prepare(LATER, claim)
        assert both.made_for_claims() == half_made
        both.unprepare(LATER, claim)
        both.assert_all_is_put_back()


def test_an_entry_that_the_next_instance_wrote_tells_the_one_before_all_that_it_knew(
    both: TwoInstances,
) -> None:
    claim = put_claim(both.node, PARTITION)
    with both.plugin(EARLIER):
        both.prepare(EARLIER, claim)
    made = both.entry(claim.uid)["devices"][0]["record"]
    both.node.machine.set_processes(made["uuid"], (4_000_001,))
    with both.plugin(LATER):
        both.unprepare(LATER, claim)
    assert both.states() == {claim.uid: "releasing"}
    assert both.entry(claim.uid)["devices"][0]["record"] == made
    both.node.machine.set_processes(made["uuid"], ())

    with both.plugin(EARLIER):
        both.unprepare(EARLIER, claim)
        both.assert_all_is_put_back()


def test_the_next_instance_goes_on_with_lost_claims(both: TwoInstances) -> None:
    kinds = [kind for kind in KINDS if kind.name in ("whole", "time-sliced-share")]
    claims = [put_claim(both.node, kind) for kind in kinds]
    with both.plugin(EARLIER) as plugin:
        answers = both.prepare(EARLIER, *claims)
        assert plugin.stop() == 0
    for claim in claims:
        (both.node.journal / f"{claim.uid}.json").unlink()
    with both.plugin(EARLIER) as plugin:
        plugin.wait_for("journal entries of claims were lost; their GPUs are blocked")
        assert all(both.entry(claim.uid)["state"] == "lost" for claim in claims)
        assert plugin.stop() == 0

    with both.plugin(LATER):
        gpus = both.gpus()
        both.unprepare(LATER, claims[0])
        assert both.prepare(LATER, *claims[1:]) == answers[1:]
        assert both.gpus() == gpus
        both.unprepare(LATER, *claims)
        both.assert_all_is_put_back()
