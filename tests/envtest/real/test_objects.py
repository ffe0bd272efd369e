"""What the harness reads from and writes into Kubernetes objects, and its command line's errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.api import objects_in
from envtest.client.errors import ClusterError
from envtest.real.api_server import holder_pod
from envtest.real.containers import container_id
from envtest.real.nodes import is_ready


def pod(**status: Any) -> dict[str, Any]:
    """A pod with an init container and two containers."""
    containers = [{"name": "first"}, {"name": "second"}]
    spec = {"containers": containers, "initContainers": [{"name": "early"}]}
    return {"metadata": {"namespace": "ns", "name": "p"}, "spec": spec, "status": status}


def test_objects_come_from_documents_dicts_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("---\nkind: A\n---\n# nothing\n---\nkind: B\n")

    assert list(objects_in(file)) == [{"kind": "A"}, {"kind": "B"}]
    assert list(objects_in({"kind": "A"})) == [{"kind": "A"}]
    assert list(objects_in([{"kind": "A"}, {"kind": "B"}])) == [{"kind": "A"}, {"kind": "B"}]


def test_container_is_the_first_unless_named() -> None:
    running = [{"name": n, "containerID": f"containerd://id-{n}"} for n in ("second", "first")]
    early = [{"name": "early", "containerID": "containerd://id-early"}]
    started = pod(containerStatuses=running, initContainerStatuses=early)

    assert container_id(started, None) == "id-first"
    assert container_id(started, "second") == "id-second"
    assert container_id(started, "early") == "id-early"


@pytest.mark.parametrize("status", [{}, {"containerStatuses": [{"name": "first", "containerID": ""}]}])
def test_container_that_was_never_started_is_named(status: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="container first of pod ns/p is not started"):
        container_id(pod(**status), None)


def test_node_is_ready_when_it_says_so() -> None:
    assert is_ready({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert not is_ready({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    assert not is_ready({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}})
    assert not is_ready({})


def test_token_holder_stays_on_its_node() -> None:
    spec = holder_pod("sa", "ns", "node-1")["spec"]

    assert spec["nodeName"] == "node-1"
    assert spec["serviceAccountName"] == "sa"


def test_paths_without_a_name_are_collections() -> None:
    assert paths.pod("p", "ns") == "/api/v1/namespaces/ns/pods/p"
    assert paths.pod(namespace="ns") == "/api/v1/namespaces/ns/pods"
    assert paths.resource_slice("s") == "/apis/resource.k8s.io/v1/resourceslices/s"
