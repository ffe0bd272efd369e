"""The next controller of a node listens to the plugin, and goes on where the one before has left."""

from contextlib import ExitStack

from tests.clusters import PACKAGE_ROOT
from tests.controller.published import SLICES
from tests.eventually import eventually
from tests.processes.node import new_node
from tests.processes.two_instances import EARLIER, TwoInstances, kill

ALL_TIERS = str(PACKAGE_ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml")


def test_the_next_controller_keeps_the_slices_and_writes_those_alone_that_change() -> None:
    with new_node() as node, ExitStack() as started:
        both = TwoInstances(node)
        started.enter_context(both.plugin(EARLIER))
        with node.controller(config=ALL_TIERS) as controller:
            controller.wait_for("slices published")
            assert controller.stop() == 0
        names = {one["metadata"]["name"] for one in node.slices()}

        later = started.enter_context(node.controller(config=ALL_TIERS))
        both.prepare(EARLIER, node.claim("train", node.gpus[0]))
        later.wait_for("state of the node", held=[node.gpus[0]])
        later.wait_for("events of GPUs")
        node.machine.recovery_action(0, "reset")
        node.machine.xid(0, 95)
        later.wait_for("slices published")

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
        first.wait_for("events of GPUs")  # NVML tells nobody of what was before
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
