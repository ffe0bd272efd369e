"""kr8s lists, creates, changes, waits for and deletes objects, also those of a kind of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kr8s
import pytest
from kr8s.objects import ConfigMap, Node, Pod, new_class

# It says that it was not tried with this version of Kubernetes.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")


@pytest.fixture
def api(kubeconfig: Path) -> Any:
    """The client of the cluster; no other test shares it."""
    return kr8s.api(kubeconfig=str(kubeconfig))


def test_objects_with_types(api: Any) -> None:
    assert api.version()["major"] == "1"
    [node] = api.get("nodes")
    assert isinstance(node, Node)
    settings = ConfigMap(
        {"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "1"}}, api=api
    )
    settings.create()
    settings.patch({"data": {"b": "2"}})
    settings.label({"app": "web"})
    [found] = api.get("configmaps", namespace="default", label_selector={"app": "web"})
    assert found.raw["data"] == {"a": "1", "b": "2"}
    found.delete()
    assert not settings.exists()


def test_a_pod_is_waited_for_and_its_log_read(api: Any) -> None:
    container = {"name": "main", "image": "localhost/busybox:1", "command": ["echo", "hello"]}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "talker", "namespace": "default"},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    pod = Pod(manifest, api=api)
    pod.create()
    pod.wait("jsonpath='{.status.phase}'=Succeeded", timeout=20)
    assert list(pod.logs()) == ["hello"]


def test_a_kind_of_its_own(api: Any, toys: dict[str, Any]) -> None:
    del toys
    toy_class = new_class("Toy", version="clients.example.com/v1", namespaced=True, asyncio=False)
    robot = toy_class(
        {"metadata": {"name": "robot", "namespace": "default"}, "spec": {"color": "red"}}, api=api
    )
    robot.create()
    assert robot.spec.count == 1
    robot.patch({"spec": {"count": 4}})
    robot.patch({"status": {"made": 4}}, subresource="status")
    [found] = api.get("toys.clients.example.com", namespace="default")
    assert (found.raw["spec"]["count"], found.raw["status"]) == (4, {"made": 4})
    robot.delete()
    robot.wait("delete", timeout=20)
