"""The driver's service accounts may do what their roles allow, and no more, on both kinds of cluster."""

from __future__ import annotations

from contextlib import closing

import pytest

from driver.errors import ApiError
from driver.kube.client import KubeClient
from envtest.cluster import Cluster
from gpuctl.demo.driver_node import DRIVER_NAMESPACE

PODS = "/api/v1/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


@pytest.mark.parametrize(
    ("account", "allowed", "forbidden"),
    [
        ("gpu-dra-kubeletplugin", (SLICES,), (PODS, CLAIMS)),
        ("gpu-dra-controller", (SLICES, PODS), (CLAIMS, "/api/v1/secrets")),
    ],
)
def test_an_account_lists_what_its_role_names(
    cluster: Cluster, account: str, allowed: tuple[str, ...], forbidden: tuple[str, ...]
) -> None:
    path = cluster.service_account_kubeconfig(DRIVER_NAMESPACE, account, cluster.nodes[0].name)
    with closing(KubeClient.connect(path)) as client:
        for place in allowed:
            assert client.get(place)["kind"].endswith("List")
        for place in forbidden:
            with pytest.raises(ApiError) as caught:
                client.get(place)
            assert f'User "system:serviceaccount:gpu-dra:{account}" cannot list resource' in str(caught.value)
