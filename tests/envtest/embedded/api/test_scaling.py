"""How many pods a workload is to have is read and written as a Scale; tables show it as kubectl does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import ask

APPS = "/apis/apps/v1/namespaces/default"
SCALE = f"{APPS}/deployments/web/scale"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

Object = dict[str, Any]


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    labels = {"app": "web"}
    pod = {"containers": [{"name": "main", "image": "one"}, {"name": "other", "image": "two"}]}
    selector = {"matchLabels": labels, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 3, "selector": selector, "template": template}
    with EmbeddedApiServer() as running:
        running.create(f"{APPS}/deployments", {"metadata": {"name": "web"}, "spec": spec})
        yield running


def stored(server: EmbeddedApiServer) -> Object:
    (found,) = server.objects("deployments", "apps")
    return found


def test_a_change_of_annotations_is_one_that_replica_sets_have_to_follow(server: EmbeddedApiServer) -> None:
    path = f"{APPS}/deployments/web"
    ask(server, "PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, content_type=MERGE)
    assert stored(server)["metadata"]["generation"] == 2

    noted = {**stored(server)["metadata"], "annotations": {"a": "b", "revision": "1"}}
    ask(server, "PUT", f"{path}/status", {**stored(server), "metadata": noted, "status": {"replicas": 1}})

    assert stored(server)["metadata"]["generation"] == 2
    assert stored(server)["metadata"]["annotations"] == {"a": "b", "revision": "1"}


def cells(server: EmbeddedApiServer, path: str) -> dict[str, Any]:
    table = ask(server, "GET", path, accept=TABLE).body
    heads = [one["name"] for one in table["columnDefinitions"]]
    (row,) = table["rows"]
    return dict(zip(heads, row["cells"], strict=True))


def test_tables_show_workloads_as_kubectl_prints_them(server: EmbeddedApiServer) -> None:
    status = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}
    server.replace(f"{APPS}/deployments/web/status", {**stored(server), "status": status})

    shown = cells(server, f"{APPS}/deployments")
    assert [shown[name] for name in ("Ready", "Up-to-date", "Available")] == ["2/3", 1, 2]
    assert [shown[name] for name in ("Containers", "Images", "Selector")] == [
        *("main,other", "one,two"),
        "app=web,!tier",
    ]
