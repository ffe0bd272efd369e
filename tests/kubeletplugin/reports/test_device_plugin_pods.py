"""What a pod has from a device plugin is blocked as long as the pod has it, whoever is gone."""

from __future__ import annotations

from kubeletplugin.kubelet.podresources import PodResourcesUnavailable
from tests.kubeletplugin.cut_node import ONE, foreign
from tests.kubeletplugin.fake_node import FakeNode


def blocked(node: FakeNode) -> list[tuple[str, str, int | None]]:
    node.health.run_once()
    return [
        (str(one.pci), one.reason, None if one.span is None else one.span.start)
        for one in node.watch.state().blocked
        if one.reason == "device-plugin"
    ]


def test_a_gpu_of_a_pod_of_a_device_plugin_is_blocked_until_the_pod_has_ended(node: FakeNode) -> None:
    second = node.gpus[1]
    node.given_by_device_plugins = {node.machine.uuid(second), "GPU-elsewhere"}
    assert blocked(node) == [(str(second), "device-plugin", None)]
    node.given_by_device_plugins = set()
    assert blocked(node) == []


def test_replicas_of_a_gpu_are_that_gpu(node: FakeNode) -> None:
    first = node.gpus[0]
    node.given_by_device_plugins = {f"{node.machine.uuid(first)}::{replica}" for replica in range(3)}
    assert blocked(node) == [(str(first), "device-plugin", None)]


def test_of_a_partition_its_place_is_blocked(node: FakeNode) -> None:
    foreign(node, ONE, 6, 1)
    mig = node.discovery.snapshot().gpus[0].mig
    assert mig is not None
    node.given_by_device_plugins = {mig.partitions[0].uuid}
    assert blocked(node) == [(str(node.gpus[0]), "device-plugin", 6)]


def test_what_was_known_stays_while_the_kubelet_does_not_tell(node: FakeNode) -> None:
    first = node.gpus[0]
    node.given_by_device_plugins = {node.machine.uuid(first)}
    before = blocked(node)
    node.given_by_device_plugins = PodResourcesUnavailable("no answer", "see that the kubelet runs")
    assert blocked(node) == before == [(str(first), "device-plugin", None)]
