"""The next controller of a node listens to the plugin, and goes on where the one before has left."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from envtest.client.shipped import PACKAGE_ROOT
from tests.controller.published import SLICES
from tests.eventually import eventually
from tests.processes.every_kind import KINDS, put_claim
from tests.processes.node import new_node
from tests.processes.two_instances import EARLIER, TwoInstances, kill

if TYPE_CHECKING:
    from tests.processes.process import DriverProcess, Line

ALL_TIERS = str(PACKAGE_ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml")
PARTITION = next(kind for kind in KINDS if kind.name == "partition")


def untainted(both: TwoInstances) -> dict[str, dict[str, Any]]:
    """The published devices by name, without their taints."""
    return {
        one["name"]: {key: of for key, of in one.items() if key != "taints"} for one in both.node.devices()
    }


def tainted(both: TwoInstances) -> set[str]:
    """The devices that have a taint."""
    return {device["name"] for device in both.node.devices() if device.get("taints")}


def hears(controller: DriverProcess, held: list[str], blocked: str) -> None:
    """Wait until the controller has heard what is held, and of a blocked place or of none."""

    def is_so(states: list[Line]) -> bool:
        last = " ".join(states[-1]["blocked"]) if states else ""
        return bool(states) and states[-1]["held"] == held and bool(blocked) == bool(last) and blocked in last

    eventually(f"held: {held}, blocked: {blocked}", lambda: controller.logged("state of the node"), is_so)


def test_the_next_controller_hears_the_plugin_and_keeps_the_slices() -> None:
    with new_node() as node, ExitStack() as started:
        both = TwoInstances(node)
        started.enter_context(both.plugin(EARLIER))
        with node.controller(config=ALL_TIERS) as controller:
            controller.wait_for("slices published")
            assert controller.stop() == 0
        published, names = untainted(both), {one["metadata"]["name"] for one in node.slices()}
        claim = put_claim(node, PARTITION)
        device = PARTITION.device(node.gpus)
        assert device in published

        later = started.enter_context(node.controller(config=ALL_TIERS))
        both.prepare(EARLIER, claim)
        hears(later, [device], "")
        uuid = both.entry(claim.uid)["devices"][0]["record"]["uuid"]
        node.machine.set_processes(uuid, (4_000_001,))
        both.unprepare(EARLIER, claim)
        hears(later, [device], "of claim team/partition")
        eventually(f"{device} has a taint", lambda: tainted(both), lambda names: device in names)
        node.machine.set_processes(uuid, ())
        both.unprepare(EARLIER, claim)
        hears(later, [], "")
        eventually("nothing has a taint", lambda: tainted(both), lambda names: names == set())

        assert untainted(both) == published
        assert {one["metadata"]["name"] for one in node.slices()} == names
        writes = {(line["created"], line["deleted"]) for line in later.logged("slices published")}
        assert writes == {(0, 0)}


def test_two_controllers_with_other_rules_do_not_write_against_each_other() -> None:
    with new_node() as node, ExitStack() as started:
        started.enter_context(TwoInstances(node).plugin(EARLIER))
        first = started.enter_context(node.controller(config=ALL_TIERS))
        first.wait_for("slices published")
        published = node.devices()

        second = started.enter_context(node.controller())
        second.wait_for("another controller of this node publishes, so this one waits")
        second.wait_for("GPUs of the node")
        assert node.devices() == published
        assert first.stop() == 0
        second.wait_for("slices published")
        assert node.devices() != published

    assert len(first.logged("slices published")) == 1


def test_a_killed_controller_leaves_its_faults_to_the_next_although_no_slice_tells_of_them() -> None:
    with new_node() as node, ExitStack() as started:
        started.enter_context(TwoInstances(node).plugin(EARLIER))
        first = started.enter_context(node.controller())
        first.wait_for("slices published")
        node.machine.recovery_action(0, "reset")
        node.machine.xid(0, 95)
        first.wait_for("fault of a GPU")
        kill(first)
        node.server.delete(SLICES)

        started.enter_context(node.controller()).wait_for("fault of an earlier process is kept")
        eventually(
            "the fault is published",
            lambda: [taint["value"] for device in node.devices() for taint in device.get("taints", ())],
            lambda values: "xid-95" in values,
        )
