"""The real API server takes every object of the classes, samples and scenarios that come with the driver."""

from pathlib import Path

import pytest
import yaml

from tests.api.conftest import new_namespace
from tests.clusters import Object, RealApiServer
from tests.refused_on_purpose import REFUSED, is_old

PROJECT = Path(__file__).resolve().parents[2]
OF_OTHERS = (
    *("kubevirt.io", "kueue.x-k8s.io", "config.kueue.x-k8s.io", "jobset.x-k8s.io"),
    "leaderworkerset.x-k8s.io",
)
"""Groups of what is not installed."""


def objects(file: Path) -> list[Object]:
    """The objects of a file but for those of others: KubeVirt and Kueue have judges of their own."""
    found = [one for one in yaml.safe_load_all(file.read_text()) if isinstance(one, dict)]
    whole = [one for one in found if {"apiVersion", "kind", "metadata"} <= set(one)]
    return [one for one in whole if one["apiVersion"].partition("/")[0] not in OF_OTHERS]


FILES = sorted(
    file
    for folder in ("deviceclasses", "deploy/examples", "deploy/scenarios")
    for file in (PROJECT / folder).rglob("*.yaml")
    if str(file.relative_to(PROJECT)) not in REFUSED
    and not is_old(str(file.relative_to(PROJECT)))
    and objects(file)
)


@pytest.fixture(scope="module")
def namespace(api_server: RealApiServer) -> str:
    """A namespace in which claims may have admin access."""
    return new_namespace(api_server.api, **{"resource.kubernetes.io/admin-access": "true"})


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PROJECT)))
def test_an_object_is_taken(api_server: RealApiServer, namespace: str, file: Path) -> None:
    """In a dry run, so in a namespace that is there and under a name that is not taken."""
    api = api_server.api
    for one in objects(file):
        one["metadata"].pop("namespace", None)
        name = one["metadata"]["name"]
        one["metadata"]["name"] = f"{name}-tried" if "." not in name else f"tried.{name}"
        if one["kind"] == "Pod":
            one["spec"].pop("priorityClassName", None)  # a dry run made none
        for container in one.get("spec", {}).get("containers", ()):
            container["imagePullPolicy"] = "Never"

        taken = api.request("POST", api.collection_of(one, namespace), one, query={"dryRun": "All"})

        assert taken["metadata"]["name"] == one["metadata"]["name"]
