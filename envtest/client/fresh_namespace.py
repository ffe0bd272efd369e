"""Gives a test a namespace of its own in a running cluster, and sees it empty when the test ends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from envtest.client import paths
from envtest.client.api import ApiClient
from envtest.client.watching import wait_for, wait_for_list


@contextmanager
def fresh_namespace(api: ApiClient) -> Iterator[str]:
    """The name of a new namespace; its workloads, pods and claims are gone when the block ends."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_for(api, paths.service_account("default", name), lambda _: True)
    yield name
    for workloads in paths.workloads(name):  # they would make their pods anew
        api.delete(workloads)
    for pod in api.list_objects(paths.pod(namespace=name)):
        api.delete(paths.pod(pod["metadata"]["name"], name), grace_seconds=1)
    wait_for_list(api, paths.pod(namespace=name), lambda pods: not pods)
    api.delete(paths.resource_claim(namespace=name))  # with the namespace they would go seconds later
    wait_for_list(api, paths.resource_claim(namespace=name), lambda claims: not claims)
    api.delete(paths.namespace(name))
