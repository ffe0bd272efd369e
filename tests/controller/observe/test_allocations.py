"""Which devices are allocated is read from the claims of the whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.observe.allocations import allocated_devices
from driver.kube.client import KubeClient
from driver.kube.errors import Forbidden
from tests.controller.allocated import POOL, allocate

if TYPE_CHECKING:
    from pathlib import Path

    from envtest.embedded.server import EmbeddedApiServer


@pytest.fixture
def client(server: EmbeddedApiServer, tmp_path: Path) -> KubeClient:
    return KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))


def look(client: KubeClient) -> frozenset[str]:
    return allocated_devices(client, driver="gpu.nvidia.com", pool=POOL)


def test_the_devices_of_all_claims_of_the_pool_count(server: EmbeddedApiServer, client: KubeClient) -> None:
    allocate(server, "one", "gpu-a", "gpu-b")
    allocate(server, "two", "gpu-c")

    assert look(client) == {"gpu-a", "gpu-b", "gpu-c"}


def test_other_pools_drivers_and_claims_without_devices_do_not(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    allocate(server, "elsewhere", "gpu-a", pool="node-b/gpu.nvidia.com")
    allocate(server, "another", "gpu-b", driver="nic.example.com")
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    server.create(claims, {"metadata": {"name": "waits"}, "spec": {"devices": {}}})

    assert look(client) == frozenset()


def test_admin_access_takes_a_device_from_nobody(server: EmbeddedApiServer, client: KubeClient) -> None:
    allocate(server, "monitor", "gpu-a", adminAccess=True)
    allocate(server, "work", "gpu-b")

    assert look(client) == {"gpu-b"}


def test_more_claims_than_fit_in_one_page_are_all_read(server: EmbeddedApiServer, client: KubeClient) -> None:
    for number in range(501):
        allocate(server, f"c{number:03}", f"gpu-{number}")

    assert len(look(client)) == 501
    assert server.count("list", "resourceclaims") == 2


def test_a_refusal_is_an_error_and_not_an_empty_answer(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.fail("list", "/resourceclaims", code=403)
    with pytest.raises(Forbidden):
        look(client)
