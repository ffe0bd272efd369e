"""Owned objects go after their owner, before it, or stay without it, as the deletion says."""

from collections.abc import Iterator

import pytest

from envtest.embedded.control.garbage_collector import EmbeddedGarbageCollector
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import SLICES, ask, resource_slice
from tests.eventually import eventually

NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
KEEPS = "example.com/keeps"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        collector = EmbeddedGarbageCollector(running)
        collector.start()
        yield running
        collector.stop()


def owned(item: Object, *owners: Object, blocks: bool = False) -> Object:
    how = {"apiVersion": "v1", "blockOwnerDeletion": blocks}
    references = [
        {"kind": one["kind"], "name": one["metadata"]["name"], "uid": one["metadata"]["uid"], **how}
        for one in owners
    ]
    return {**item, "metadata": {**item["metadata"], "ownerReferences": references}}


def config_map(name: str, *finalizers: str) -> Object:
    return {"metadata": {"name": name, "finalizers": list(finalizers)}}


def wait_for(server: EmbeddedApiServer, resource: str, *names: str, group: str = "") -> list[Object]:
    """The objects once these are the names of all of them."""
    return eventually(
        f"{resource} are {names}",
        lambda: server.objects(resource, group),
        lambda found: tuple(one["metadata"]["name"] for one in found) == names,
    )


def test_what_has_another_owner_stays_with_that(server: EmbeddedApiServer) -> None:
    one, two = (server.create(NODES, {"metadata": {"name": name}}) for name in "ab")
    server.create(SLICES, owned(resource_slice("s"), one, two))

    server.delete(f"{NODES}/a")

    def owners() -> list[str]:
        [left] = server.objects("resourceslices", "resource.k8s.io")
        return [owner["name"] for owner in left["metadata"]["ownerReferences"]]

    eventually("the slice has one owner", owners, lambda found: found == ["b"])


def test_what_is_made_for_an_owner_that_is_gone_or_never_was_goes(server: EmbeddedApiServer) -> None:
    node = server.create(NODES, {"metadata": {"name": "n"}})
    server.delete(f"{NODES}/n")
    server.create(NODES, {"metadata": {"name": "n"}})  # another node of the same name
    never = {"kind": "ConfigMap", "metadata": {"name": "none", "uid": "1"}}

    server.create(SLICES, owned(resource_slice("late"), node))
    server.create(CONFIG_MAPS, owned(config_map("c"), never))

    wait_for(server, "resourceslices", group="resource.k8s.io")
    wait_for(server, "configmaps")


def test_an_owner_in_the_foreground_goes_after_what_blocks_it(server: EmbeddedApiServer) -> None:
    owner = server.create(CONFIG_MAPS, config_map("owner"))
    server.create(CONFIG_MAPS, owned(config_map("blocking", KEEPS), owner, blocks=True))
    server.create(CONFIG_MAPS, owned(config_map("other"), owner))

    ask(server, "DELETE", f"{CONFIG_MAPS}/owner?propagationPolicy=Foreground")

    eventually(
        "only what blocks the owner is left, and it is deleted",
        lambda: server.objects("configmaps"),
        lambda found: (
            [one["metadata"]["name"] for one in found] == ["blocking", "owner"]
            and all("deletionTimestamp" in one["metadata"] for one in found)
        ),
    )
    ask(server, "PUT", f"{CONFIG_MAPS}/blocking", config_map("blocking"))
    wait_for(server, "configmaps")
