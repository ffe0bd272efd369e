"""What one version of the driver has prepared another takes over: the released one, today's, either way."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from grpc import RpcError

from tests.processes.every_kind import KINDS, put_claim
from tests.processes.two_versions import TwoVersions, Version, kill, two_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proto import dra_v1_pb2 as v1

ORDERS = [("released", "today"), ("today", "released")]
MPS_SHARE = next(kind for kind in KINDS if "mps" in kind.name)
PARTITION = next(kind for kind in KINDS if kind.name == "partition")


@pytest.fixture
def both() -> Iterator[TwoVersions]:
    with two_versions() as node:
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


def unprepare_leaving(both: TwoVersions, claim: v1.Claim, name: str) -> None:
    """Unprepare what a process still uses: the released version fails, today's need not be asked again."""
    (error,) = both.node.unprepare(claim, within_seconds=10, pod_uid=Version.named(name).pod_uid)
    assert ("4000001" in error) if name == "released" else (error == ""), error


@pytest.mark.parametrize(("before", "after"), [*ORDERS, ("before", "today"), ("today", "before")])
def test_the_next_version_answers_for_claims_of_every_kind_and_takes_them_back(
    both: TwoVersions, before: str, after: str
) -> None:
    first, second = Version.named(before), Version.named(after)
    claims = [put_claim(both.node, kind) for kind in KINDS]
    with ExitStack() as started:
        supervisor = started.enter_context(both.supervisor(first))
        plugin = started.enter_context(both.plugin(first))
        answers = both.prepare(first, *claims)
        gpus, daemons, specs, records = both.gpus(), both.daemons(), both.specs(), both.records()
        assert len(daemons) == len(
            [kind for kind in KINDS if "mps" in kind.name or kind.name == "fractional"]
        )
        assert len(specs) == len(KINDS)

        assert supervisor.stop() == 0
        started.enter_context(both.supervisor(second))
        started.enter_context(both.plugin(second))
        assert both.prepare(second, *claims) == answers
        assert plugin.stop() == 0
        assert both.prepare(second, *claims) == answers
        assert (both.gpus(), both.daemons()) == (gpus, daemons)
        assert nodes_of(both.specs()) == nodes_of(specs)
        assert both.records() == records
        assert set(both.states().values()) == {"prepared"}

        both.unprepare(second, *claims)
        both.assert_all_is_put_back()


@pytest.mark.parametrize(("before", "after"), ORDERS)
def test_the_next_version_finishes_what_a_crash_has_cut_off(
    both: TwoVersions, before: str, after: str
) -> None:
    first, second = Version.named(before), Version.named(after)
    claim = put_claim(both.node, PARTITION)
    with both.plugin(first) as plugin, ThreadPoolExecutor() as pool:
        both.node.machine.hang("create_compute_instance")
        call = pool.submit(both.node.prepare, claim, pod_uid=first.pod_uid)
        both.wait_for_state(PARTITION.uid, "preparing", lambda device: device["partition"]["attempted"])
        both.wait_until(lambda: both.made_for_claims() != ())
        kill(plugin)
        with pytest.raises(RpcError):
            call.result()
        both.node.machine.heal()
    half_made = both.made_for_claims()

    with both.plugin(second):
        both.prepare(second, claim)
        assert both.made_for_claims() == half_made
        both.unprepare(second, claim)
        both.assert_all_is_put_back()


@pytest.mark.parametrize(("before", "after"), ORDERS)
def test_the_next_version_takes_back_what_could_not_be_taken_back_yet(
    both: TwoVersions, before: str, after: str
) -> None:
    first, second = Version.named(before), Version.named(after)
    claim = put_claim(both.node, PARTITION)
    with both.plugin(first):
        both.prepare(first, claim)
        uuid = both.entry(claim.uid)["devices"][0]["partition"]["uuid"]
        both.node.machine.set_processes(uuid, (4_000_001,))
        unprepare_leaving(both, claim, before)
        assert both.states() == {claim.uid: "releasing"}
    both.node.machine.set_processes(uuid, ())

    with both.plugin(second):
        both.unprepare(second, claim)
        both.assert_all_is_put_back()


@pytest.mark.parametrize(("before", "after"), ORDERS)
def test_an_entry_that_the_next_version_wrote_anew_tells_the_one_before_all_that_it_knew(
    both: TwoVersions, before: str, after: str
) -> None:
    first, second = Version.named(before), Version.named(after)
    claim = put_claim(both.node, PARTITION)
    with both.plugin(first):
        both.prepare(first, claim)
    made = both.entry(claim.uid)["devices"][0]["partition"]
    both.node.machine.set_processes(made["uuid"], (4_000_001,))
    with both.plugin(second):
        unprepare_leaving(both, claim, after)
    assert both.states() == {claim.uid: "releasing"}
    assert both.entry(claim.uid)["devices"][0]["partition"] == made
    both.node.machine.set_processes(made["uuid"], ())

    with both.plugin(first):
        both.unprepare(first, claim)
        both.assert_all_is_put_back()


@pytest.mark.parametrize(("before", "after"), ORDERS)
def test_the_next_version_goes_on_with_claims_whose_journal_was_lost(
    both: TwoVersions, before: str, after: str
) -> None:
    first, second = Version.named(before), Version.named(after)
    kinds = [kind for kind in KINDS if kind.name in ("whole", "partition", "time-sliced-share")]
    claims = [put_claim(both.node, kind) for kind in kinds]
    with both.plugin(first) as plugin:
        answers = both.prepare(first, *claims)
        assert plugin.stop() == 0
    for claim in claims:
        (both.node.journal / f"{claim.uid}.json").unlink()
    with both.plugin(first) as plugin:
        plugin.wait_for("journal and CDI specs brought together")
        assert all(both.entry(claim.uid)["rebuilt"] for claim in claims)
        assert plugin.stop() == 0

    with both.plugin(second):
        gpus = both.gpus()
        both.unprepare(second, claims[0])
        assert both.prepare(second, *claims[1:]) == answers[1:]
        assert both.gpus() == gpus
        both.unprepare(second, *claims)
        both.assert_all_is_put_back()


def test_a_plugin_says_once_that_its_supervisor_is_of_a_former_version(both: TwoVersions) -> None:
    today, claim = Version.named("today"), put_claim(both.node, MPS_SHARE)
    with both.supervisor(Version.named("released")), both.plugin(today) as plugin:
        both.prepare(today, claim)
        both.prepare(today, claim)
        both.unprepare(today, claim)
        both.assert_all_is_put_back()
        said = [line for line in plugin.text.splitlines() if "is of a former version" in line]

    assert len(said) == 1
