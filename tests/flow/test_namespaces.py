"""A namespace that is deleted takes its pods along, their GPUs are free again, and then it is gone."""

from __future__ import annotations

import pytest

from envtest.client import paths
from envtest.client.errors import ApiRefused
from envtest.client.waiting import wait_for, wait_gone
from envtest.cluster import Cluster
from tests.flow.claims import gpu_pod, make_template, start

TEAM = "leaving"


def test_a_namespace_ends_with_all_that_is_in_it(cluster: Cluster) -> None:
    cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    wait_for(cluster.api, paths.service_account("default", TEAM), lambda _: True)
    make_template(cluster, TEAM)
    pod = gpu_pod("train")
    pod["metadata"]["finalizers"] = ["example.com/held"]
    start(cluster, TEAM, pod)

    cluster.api.delete(paths.namespace(TEAM))

    ending = wait_for(cluster.api, paths.namespace(TEAM), lambda one: "deletionTimestamp" in one["metadata"])
    assert ending["status"]["phase"] == "Terminating"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    words = f"unable to create new content in namespace {TEAM} because it is being terminated"
    with pytest.raises(ApiRefused, match=words) as caught:
        cluster.api.create(config, TEAM)
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")

    cluster.api.patch(paths.pod("train", TEAM), {"metadata": {"finalizers": None}})
    wait_gone(cluster.api, paths.namespace(TEAM), 60)
    assert cluster.api.list_objects(paths.resource_claim(namespace=TEAM)) == []
