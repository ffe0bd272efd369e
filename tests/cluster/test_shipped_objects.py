"""The real API server takes every object of the classes, samples and scenarios that come with the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest.real.cluster import RealCluster

PROJECT = Path(__file__).resolve().parents[2]
FILES = sorted(
    file
    for folder in ("deviceclasses", "deploy/examples", "deploy/scenarios")
    for file in (PROJECT / folder).rglob("*.yaml")
    if "node-config" not in file.parts and "nodes" not in file.parts
)

Object = dict[str, Any]


def objects(file: Path) -> list[Object]:
    """The objects of a file but for those of KubeVirt, which is not installed and has a judge of its own."""
    found = [one for one in yaml.safe_load_all(file.read_text()) if one]
    return [one for one in found if one["apiVersion"] != "kubevirt.io/v1"]


@pytest.fixture(scope="module")
def namespace(installed_cluster: RealCluster) -> Iterator[str]:
    """A namespace in which claims may have admin access."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried", "labels": labels}}
    installed_cluster.api.create(made)
    yield "tried"
    installed_cluster.api.delete(installed_cluster.api.path_of(made))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PROJECT)))
def test_an_object_is_taken(installed_cluster: RealCluster, namespace: str, file: Path) -> None:
    """In a dry run, so in a namespace that is there and under a name that is not taken."""
    api = installed_cluster.api
    for one in objects(file):
        one["metadata"].pop("namespace", None)
        name = one["metadata"]["name"]
        one["metadata"]["name"] = f"{name}-tried" if "." not in name else f"tried.{name}"
        for container in one.get("spec", {}).get("containers", ()):
            container["imagePullPolicy"] = "Never"

        taken = api.request("POST", api.collection_of(one, namespace), one, query={"dryRun": "All"})

        assert taken["metadata"]["name"] == one["metadata"]["name"]
