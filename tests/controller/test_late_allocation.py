"""A scheduler that writes minutes late what it chose before a change: nobody else gets what lies there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.observe.allocations import ClaimWatch
from controller.observe.observer import Observer
from driver.devices.node_state import NodeState
from driver.devices.taints import TAINT_BLOCKED
from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from driver.policy.rules import NodeConfig, Rule
from driver.process.metrics import Metrics
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller.allocated import POOL, allocate, end_claim
from tests.controller.heard_events import HeardEvents
from tests.controller.mig_node import BALANCED, DYNAMIC
from tests.controller.published import Published

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.devices.gpu_policy import GpuPolicy
    from envtest.embedded.server import EmbeddedApiServer

OLD = "gpu-0000-1b-00-0-mig-1g-10gb-6"
"""A dynamic partition that a balanced layout does not have: in place of it there is a larger one."""

OVER_IT = "gpu-0000-1b-00-0-mig-3g-40gb-4"
NEW = "gpu-0000-1b-00-0-mig-2g-20gb-0"


class Node:
    """A controller that follows the claims, but for what watches its plugin."""

    def __init__(self, published: Published, guard: Guard) -> None:
        self.published = published
        self.rules = NodeConfig((Rule(None, DYNAMIC),))
        machine = FakeMachine.open("hgx-h100")
        discovery = Discovery(machine.nvml(), Path("/no-sysfs"), guard)
        publisher = published.publisher
        self.observer = Observer(discovery, lambda: self.rules, Metrics(), HeardEvents(), publisher.offer)
        self.observer.plugin_reports(NodeState())
        self.claims = ClaimWatch(
            published.client, self.observer.claims_changed, node="node-a", driver="gpu.nvidia.com", pool=POOL
        )
        published.follow = self.claims.follow
        self._thread = threading.Thread(target=self.claims.run)
        self._thread.start()

    def becomes(self, form: GpuPolicy, *names: str) -> None:
        """Publish the form, and wait until these devices are there and free."""
        self.rules = NodeConfig((Rule(None, form),))
        self.observer.check()
        self.published.becomes(lambda: all(self.taints().get(name) == [] for name in names))

    def taints(self) -> dict[str, list[str]]:
        """The keys of the taints of each published device."""
        return {
            device["name"]: [taint["key"] for taint in device.get("taints", [])]
            for item in self.published.slices()
            for device in item["spec"].get("devices", [])
        }

    def end(self) -> None:
        self.claims.stop()
        self._thread.join(10)


@pytest.fixture
def node(published: Published) -> Iterator[Node]:
    guard = Guard()
    one = Node(published, guard)
    published.start()
    yield one
    one.end()
    guard.close()


def test_an_allocation_that_comes_after_the_change_blocks_what_lies_there(
    node: Node, server: EmbeddedApiServer
) -> None:
    node.becomes(DYNAMIC, OLD)
    node.becomes(BALANCED, NEW)
    assert OLD not in node.taints()

    allocate(server, "late", OLD)

    node.published.becomes(lambda: node.taints()[OVER_IT] == [TAINT_BLOCKED])
    second = {name: keys for name, keys in node.taints().items() if name.startswith("gpu-0000-43")}
    assert second
    assert not any(second.values())

    end_claim(server, "late")
    node.published.becomes(lambda: node.taints()[OVER_IT] == [])


def test_an_allocation_that_is_older_than_the_slices_blocks_what_lies_there(
    node: Node, server: EmbeddedApiServer
) -> None:
    """A reboot wiped the slices, the configuration is another, and the claim's pod waits for its node."""
    allocate(server, "train", OLD)

    node.becomes(BALANCED, NEW)

    node.published.becomes(lambda: node.taints().get(OVER_IT) == [TAINT_BLOCKED])
    end_claim(server, "train")
    node.published.becomes(lambda: node.taints()[OVER_IT] == [])


def test_nobody_follows_the_claims_where_each_has_what_is_published(
    node: Node, server: EmbeddedApiServer
) -> None:
    allocate(server, "train", NEW)

    node.becomes(BALANCED, OVER_IT)

    assert server.count("list", "pods") == 1
    assert server.count("watch", "pods") == 0
