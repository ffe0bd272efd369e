"""A cluster for the clients of others, and the definition of a kind of their own."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envtest.embedded.cluster import EmbeddedCluster


@pytest.fixture(autouse=True)
def _connections_closed() -> Iterator[None]:
    """Close what the clients have left open: they leave it to the garbage collector, at any time."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """An embedded cluster with one node."""
    with EmbeddedCluster() as started:
        yield started


@pytest.fixture
def kubeconfig(cluster: EmbeddedCluster) -> Path:
    """The kubeconfig of its administrator."""
    return cluster.admin


@pytest.fixture
def toys(cluster: EmbeddedCluster) -> dict[str, Any]:
    """The definition of the kind Toy, which is served."""
    spec = {
        "type": "object",
        "required": ["color"],
        "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "count": {"type": "integer", "default": 1, "maximum": 9},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.clients.example.com"},
        "spec": {
            "group": "clients.example.com",
            "scope": "Namespaced",
            "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
            "versions": [version],
        },
    }
    return cluster.api_server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
