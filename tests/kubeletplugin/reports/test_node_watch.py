"""What the controller is told: the devices that claims hold, and the places where nothing can be made."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

import pytest

from kubeletplugin.reports.node_watch import NodeWatch, daemons_down
from tests.gpus import BlockedPlacement, Inventory, NodeState, PciAddress, Placement, gpu_device_name
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import own_sysfs
from tests.kubeletplugin.heard_states import watching
from tests.kubeletplugin.held import made
from tests.kubeletplugin.shown_node import ONE
from tests.plugin import (
    ClaimRef,
    Entry,
    HeldDevice,
    InstanceInUse,
    Journal,
    MpsState,
    PartitionRecord,
    ShareRecord,
)


def blocked(node: FakeNode, *before: Entry) -> list[tuple[str, Placement | None]]:
    """What a look at the hardware finds, as reason and place."""
    return [(one.reason, one.span) for one in found_foreign(node, node.discovery.snapshot(), before)]


def found_foreign(node: FakeNode, seen: Inventory, before: Iterable[Entry]) -> tuple[BlockedPlacement, ...]:
    watch = NodeWatch(node.journal, node.kinds, lambda _: None, 1.0)
    return watch.foreign(seen, before)


def test_what_a_claim_has_that_is_being_let_go_is_nobody_elses(node: FakeNode) -> None:
    left_behind(node)
    assert blocked(node) == []


def left_behind(node: FakeNode) -> ClaimRef:
    """A claim that has ended and whose partition a process still uses."""
    ref = node.prepared_devices("train", node.part())
    node.machine.set_processes(node.partition_uuid(ref), (4242,))
    assert isinstance(node.unprepare(ref), InstanceInUse)
    return ref


def test_an_instance_that_is_destroyed_during_the_look_was_its_claims(node: FakeNode) -> None:
    ref = node.prepared_devices("train", node.part())
    before = node.journal.entries()
    seen = node.discovery.snapshot()
    node.unprepare(ref)
    assert found_foreign(node, seen, before) == ()


def test_an_instance_that_lived_within_one_look_was_its_claims(node: FakeNode) -> None:
    ref = node.claim_devices("train", node.part())
    before = node.journal.entries()
    node.prepare(ref)
    seen = node.discovery.snapshot()
    node.unprepare(ref)

    node.watch.saw(seen, before)

    assert node.watch.state().blocked == ()


def test_changes_of_claims_and_of_the_hardware_are_passed_on(node: FakeNode) -> None:
    with watching(node) as told:
        told.wait(NodeState())
        whole = node.claim("whole", 1)
        device = node.part(0)
        node.prepare(whole)
        node.prepared_devices("train", device)
        node.prepared("look", 2, admin=True)
        held = tuple(sorted((gpu_device_name(node.gpus[1]), device)))
        told.wait(NodeState(held))

        theirs = node.cut_by_hand(ONE, 6, 1)
        node.health.run_once()
        place = BlockedPlacement(
            node.gpus[0],
            Placement(6, 1),
            "foreign-instance",
            f"GPU instance {theirs.id} of GPU {node.gpus[0]} at memory slice 6 was not made by this driver",
        )
        told.wait(NodeState(held, (place,)))
        node.unprepare(whole)
        told.wait(NodeState((device,), (place,)))


def test_a_gpu_that_left_is_unhealthy_while_a_claim_has_it_and_then_forgotten(node: FakeNode) -> None:
    ref, name = node.claim("train", 1), gpu_device_name(node.gpus[1])
    node.prepare(ref)
    assert node.told_health()[name].health.word == "Healthy"
    own_sysfs(node.sysfs)
    (node.sysfs / "bus/pci/devices" / str(node.gpus[1])).unlink()
    node.machine.remove(node.gpus[1])

    assert node.told_health()[name].health.word == "Unhealthy"
    node.unprepare(ref)
    assert name not in node.told_health()


def test_what_another_instance_did_is_seen_with_the_next_look(node: FakeNode) -> None:
    ref = node.claim("whole", 1)
    with watching(node) as told:
        told.wait(NodeState())
        other = node.instance()
        other.preparer.prepare(ref, node.call())
        other.peers.close()
        node.health.run_once()
        told.wait(NodeState((gpu_device_name(node.gpus[1]),)))


def test_a_daemon_that_has_just_started_is_not_missed_while_the_stream_is_late(node: FakeNode) -> None:
    """On a busy machine its GPU was blocked, and the next shares went to another one."""
    node.mps.follow(node.watch.daemons)
    node.prepared_shares("train", f"{gpu_device_name(node.gpus[0])}-mps-4")

    assert node.watch.state().blocked == ()


def test_a_daemon_of_a_claim_that_comes_while_the_daemons_are_looked_at_is_not_missed(node: FakeNode) -> None:
    node.watch.daemons(())
    claim = node.claim_shares("train", f"{gpu_device_name(node.gpus[0])}-mps-4")

    class Late(Journal):
        """Read first without the claim."""

        def __init__(self) -> None:
            self.reads = 0
            self.generation = node.journal.generation

        def held(self) -> tuple[Entry, ...]:
            self.reads += 1
            if self.reads == 2:
                node.prepare(claim)
            return node.journal.held()

    watch = NodeWatch(Late(), node.kinds, lambda _: None, 1.0)
    watch.daemons(())

    assert watch.state().blocked == ()
    assert [one.reason for one in watch.state().blocked] == ["mps-daemon"], "the next look does"


def test_a_daemon_that_ends_with_its_last_share_is_not_missed(node: FakeNode) -> None:
    with watching(node) as told:
        device = f"{gpu_device_name(node.gpus[0])}-mps-4"
        share = node.prepared_shares("share", device)
        node.watch.daemons((MpsState(gpu_device_name(node.gpus[0]), running=True),))
        told.wait(NodeState((device,)))

        states = []

        def followed(step: str) -> None:
            if step == "daemon stopped":
                node.watch.daemons(())
            states.append(node.watch.state())

        node.on_step = followed
        assert node.unprepare(share) is None

        assert {one for state in states for one in state.blocked} == set()
        assert NodeState((device,)) in states
        told.wait(NodeState())


def test_a_gpu_is_busy_while_its_mig_mode_is_changed(node: FakeNode) -> None:
    device = node.part()
    ref = node.claim_devices("train", device)
    node.machine.hang("set_mig_mode", gpu=0)
    with watching(node) as told, ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(node.prepare, ref)
        told.wait(NodeState((device,), busy=(node.machine.pci(0),)))
        node.machine.heal()
        prepared.result(30)
        told.wait(NodeState((device,)))


GROUP, PCI = "gpu-0000-01-00-0", "0000:01:00.0"
DEVICE = f"{GROUP}-mps-4"


def held(device: str = DEVICE, group: str = GROUP) -> HeldDevice:
    share = ShareRecord(group, "MPS", 1)
    return HeldDevice("r", "p", device, PCI, "GPU-1", "cdi", "s", kind="whole", share=share)


def entry(*devices: HeldDevice, state: Literal["preparing", "prepared", "releasing"] = "prepared") -> Entry:
    return Entry("u", "team", "train", state, 0, devices or (held(),))


def down(message: str) -> tuple[BlockedPlacement, ...]:
    return (BlockedPlacement(PciAddress.parse(PCI), None, "mps-daemon", f"{DEVICE}: {message}"),)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (None, "the MPS supervisor of the node does not answer"),
        ((), "its MPS control daemon does not exist"),
        ((MpsState("gpu-0000-02-00-0", running=True),), "its MPS control daemon does not exist"),
        (
            (MpsState(GROUP, running=False, message="it died"),),
            "its MPS control daemon does not serve: it died",
        ),
    ],
)
def test_a_daemon_that_does_not_serve_blocks_its_device(
    states: tuple[MpsState, ...] | None, message: str
) -> None:
    assert daemons_down([entry(), entry()], states, "") == down(message), "each device once"


def test_what_has_its_daemon_or_needs_none_now_blocks_nothing() -> None:
    assert daemons_down([entry()], [MpsState(GROUP, running=True)], "") == ()
    slice_ = replace(held(), share=ShareRecord(GROUP, "TimeSlicing", 1))
    whole = replace(held(), device=GROUP, share=None)
    for one in (entry(slice_, whole), entry(state="preparing"), entry(state="releasing")):
        assert daemons_down([one], None, "") == ()


def test_a_partition_blocks_its_own_place_and_a_group_all_its_gpus() -> None:
    name = f"{GROUP}-mig-1g-10gb-6"
    part = replace(held(f"{name}-mps-2", name), **made(PartitionRecord("1g.10gb", 19, 6, 1)))
    other = replace(held("gpu-0000-02-00-0"), pci="0000:02:00.0")
    found = daemons_down([entry(part), entry(replace(held(), device=GROUP), other)], [], "")
    assert [(one.pci, one.span) for one in found] == [
        (PciAddress.parse(PCI), None),
        (PciAddress.parse(PCI), Placement(6, 1)),
        (PciAddress.parse("0000:02:00.0"), None),
    ]
