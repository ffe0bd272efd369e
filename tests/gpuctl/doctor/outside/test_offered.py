"""What a node is to offer to virtual machines follows from its configuration and slices, and who asks."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gpuctl.doctor.outside.reading import offered_to_machines, read_configurations
from tests.clusters import EmbeddedApiServer, KubeClient
from tests.gpuctl.doctor.clusters import NODE, node, well_cluster

KIND = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "VfioDeviceConfig"}
VFIO_CONFIG = {**KIND, "iommu": {"backendPolicy": "PreferIommuFD"}}


def publishing(kind: str) -> Any:
    """The well cluster, whose node publishes a device of that type."""
    device = {"name": "gpu-x", "attributes": {"type": {"string": kind}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "devices": [device]}
    return dataclasses.replace(well_cluster(), slices=({"metadata": {"name": "one"}, "spec": spec},))


def configured(config: Any) -> dict[str, Any]:
    return {"opaque": {"driver": "gpu.nvidia.com", "parameters": config}}


def test_what_is_published_for_machines_is_offered_to_them() -> None:
    assert offered_to_machines(publishing("vfio"), NODE, ()) == ("passthrough",)
    assert offered_to_machines(publishing("vgpu"), NODE, ()) == ("vgpu",)
    assert offered_to_machines(publishing("vfio"), "node-b", ()) == ()


def test_iommufd_is_asked_for_by_a_class_or_a_claim() -> None:
    device_class = {"metadata": {"name": "vm"}, "spec": {"config": [configured(VFIO_CONFIG)]}}
    seen = dataclasses.replace(publishing("vfio"), classes=(device_class,))
    assert offered_to_machines(seen, NODE, ()) == ("passthrough", "iommufd")
    claim = {"metadata": {"name": "vm"}, "spec": {"devices": {"config": [configured(VFIO_CONFIG)]}}}
    asking = dataclasses.replace(publishing("vfio"), claims=(claim,))
    assert offered_to_machines(asking, NODE, ()) == ("passthrough", "iommufd")


def test_configurations_of_anybody_may_be_anything() -> None:
    written: list[Any] = [None, "text", {"iommu": []}, {"iommu": {"backendPolicy": 7}}]
    odd = [configured(one) for one in written]
    asking = dataclasses.replace(
        publishing("vfio"), claims=({"metadata": {"name": "vm"}, "spec": {"devices": {"config": odd}}},)
    )

    assert offered_to_machines(asking, NODE, ["no: [configuration", "version: v9\n"]) == ("passthrough",)


@pytest.mark.parametrize("rule", ["offer: passthrough", "passthrough: true"])
def test_the_rules_of_the_nodes_own_pool_count(rule: str) -> None:
    text = (
        "version: v1\npools:\n  - name: machines\n    nodeSelector: {matchLabels: {for: machines}}\n"
        f"    rules: [{{{rule}}}]\nrules: [{{mig: dynamic}}]\n"
    )
    mine = node()
    mine["metadata"]["labels"] |= {"for": "machines"}
    seen = dataclasses.replace(well_cluster(), nodes=(mine,))

    assert offered_to_machines(seen, NODE, [text]) == ("passthrough",)
    assert offered_to_machines(well_cluster(), NODE, [text]) == ()


def test_the_configuration_is_read_where_the_driver_is_installed(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        server.create("/api/v1/namespaces", {"metadata": {"name": "gpu-dra"}})
        stored = {"metadata": {"name": "gpu-dra-node-config"}, "data": {"config.yaml": "version: v1\n"}}
        server.create("/api/v1/namespaces/gpu-dra/configmaps", stored)
        client = KubeClient.connect(server.write_kubeconfig(tmp_path / "config"), user_agent="test")

        assert read_configurations(client, ("gpu-dra", "elsewhere")) == ("version: v1\n",)
