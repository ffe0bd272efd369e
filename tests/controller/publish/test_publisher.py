"""The slices of a node are as they should be, whatever happens to them or to the API server."""

import copy
from typing import Any

import pytest

from controller.publish.publisher import Wanted
from driver.policy.offers import Doubt
from envtest.embedded.server import ALWAYS
from tests.clusters import EmbeddedApiServer
from tests.controller.published import POOL, SLICES, Published, gpus
from tests.eventually import eventually
from tests.gpus import ConfigError, Offers, Taint

CUT = {"kind": "close"}
LOST = Taint("gpu.nvidia.com/gpu-lost", "nvmlDeviceGetUUID", "NoSchedule")


def foreign_slice(name: str, **spec: str) -> dict[str, Any]:
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
    ours = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": pool, "devices": [{"name": "foreign"}]}
    return {"metadata": {"name": name}, "spec": {**ours, **spec}}


def test_the_first_publication_is_owned_by_the_node(server: EmbeddedApiServer, published: Published) -> None:
    published.runs(8)
    [item] = published.slices()
    assert item["metadata"]["name"].startswith("00000-gpu.nvidia.com-node-a-")
    uid = server.objects("nodes")[0]["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": uid, "controller": True}
    assert item["metadata"]["ownerReferences"] == [owner]
    assert item["spec"]["pool"] == {"name": POOL, "generation": 1, "resourceSliceCount": 1}
    assert item["spec"]["nodeName"] == "node-a"


def test_an_autoscaler_sees_a_new_node_whole_at_once(published: Published) -> None:
    published.runs(8)
    published.settles()  # for longer than a taint of a changeover lasts

    # Written once: the one generation has all devices, and none waits for a look at the claims.
    assert published.writes() == 1
    assert all("taints" not in device for device in published.devices())


def test_nothing_is_published_before_the_plugin_serves(published: Published) -> None:
    published.start(gpus(8), serving=False)
    # It would be 0 once they were written.
    published.becomes(lambda: published.publisher.age_seconds() > 0.5)
    assert published.slices() == []

    published.publisher.plugin_serves(True)  # the value is the message

    published.publishes(8)


def test_nothing_is_published_before_the_gpus_are_known(published: Published) -> None:
    published.start(None)
    published.becomes(lambda: published.server.watches == 1)
    assert published.slices() == []

    published.offer([])

    published.becomes(lambda: len(published.slices()) == 1)
    assert published.complete()


def test_where_nothing_is_published_nothing_is_written_before_something_is_known(
    published: Published,
) -> None:
    hung = Taint("gpu.nvidia.com/unresponsive", "nvmlDeviceGetCount_v2", "NoSchedule")
    blind = Offers((), (), doubts=(Doubt(None, whole=True, taints=(hung,)),))
    published.publisher._sync(Wanted(blind, frozenset(), ()))  # noqa: SLF001 - one sync, without waiting for what never comes
    assert published.writes() == 0


def test_slices_that_are_wiped_again_and_again_come_back_as_soon_as_those_that_were_wiped_once(
    server: EmbeddedApiServer, published: Published
) -> None:
    published.runs(2)
    published.settles()
    published.publisher._debounce_seconds = 3600.0  # noqa: SLF001 - as after a fight of many writes

    server.delete(SLICES)

    published.publishes(2)


def test_slices_stay_away_while_the_plugin_does_not_serve(
    server: EmbeddedApiServer, published: Published
) -> None:
    published.runs(8)
    published.settles()
    published.publisher.plugin_serves(False)  # the value is the message

    writes = published.writes()
    server.delete(SLICES)
    published.offer(gpus(7))
    published.becomes(lambda: published.publisher.reflector.snapshot()[0] == [])
    assert (published.slices(), published.writes()) == ([], writes)

    published.publisher.plugin_serves(True)  # the value is the message
    published.publishes(7)


def test_slices_of_other_nodes_and_drivers_are_left_alone(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.create(SLICES, foreign_slice("elsewhere", nodeName="node-b"))
    server.create(SLICES, foreign_slice("other", driver="other.example.com"))

    published.start(gpus(1))

    published.becomes(lambda: len(published.slices()) == 3)
    assert {"elsewhere", "other"} < {item["metadata"]["name"] for item in published.slices()}


def test_a_taint_is_as_old_after_a_wipe_as_before(server: EmbeddedApiServer, published: Published) -> None:
    """Else tolerationSeconds of a pod would start anew each time a kubelet starts."""
    old = "2026-01-01T00:00:00Z"
    published.runs(1, taints=(LOST,))
    (item,) = copy.deepcopy(published.slices())
    item["spec"]["devices"][0]["taints"][0]["timeAdded"] = old
    server.replace(f"{SLICES}/{item['metadata']['name']}", item)
    published.settles()

    server.delete(SLICES)

    published.publishes(1)
    assert published.slices()[0]["spec"]["devices"][0]["taints"][0]["timeAdded"] == old


@pytest.mark.parametrize(
    "fault", [{"code": 403}, {"code": 429, "retry_after_seconds": 0}, CUT], ids=["refused", "busy", "cut off"]
)
def test_a_failed_write_is_repeated(server: EmbeddedApiServer, published: Published, fault: Any) -> None:
    server.fail("create", "/resourceslices", times=2, **fault)

    published.runs(8)
    assert server.count("create", "resourceslices") == 3


def test_a_device_that_the_api_would_refuse_costs_only_itself(
    server: EmbeddedApiServer, published: Published
) -> None:
    good, bad = gpus(2)
    published.start([good, type(bad)("Not A Label", bad.pci)])

    published.publishes(1)
    [event] = eventually("an event", lambda: server.objects("events"))
    assert "Not A Label" in event["message"]


def test_a_node_that_came_back_owns_the_new_slices(server: EmbeddedApiServer, published: Published) -> None:
    published.runs(1)
    eventually("it watches", lambda: server.watches)
    server.delete("/api/v1/nodes/node-a")
    again = server.create("/api/v1/nodes", {"apiVersion": "v1", "metadata": {"name": "node-a"}})

    server.delete(SLICES)

    published.publishes(1)
    [owner] = published.slices()[0]["metadata"]["ownerReferences"]
    assert owner["uid"] == again["metadata"]["uid"]


def test_a_node_that_does_not_exist_is_named(server: EmbeddedApiServer, published: Published) -> None:
    server.delete("/api/v1/nodes/node-a")

    with pytest.raises(ConfigError, match=r"'node-a'.*--node-name"):
        published.writer.owner()


def test_the_metrics_say_what_is_published(published: Published) -> None:
    published.runs(65)
    published.settles()

    registry = published.metrics.registry
    assert registry.get_sample_value("gpu_dra_published_devices") == 65
    assert registry.get_sample_value("gpu_dra_published_slices") == 2
    assert registry.get_sample_value("gpu_dra_slice_writes_total", {"verb": "create"}) == 2


def test_a_write_that_never_ends_is_work_that_hangs_and_waiting_for_a_change_is_not(
    server: EmbeddedApiServer, published: Published
) -> None:
    write = server.fail("create", "resourceslices", kind="hang")
    published.start(gpus(1))

    hung = published.pulse.hung
    eventually("the publisher's work hangs", hung, lambda what: what.startswith("publisher has been running"))
    write.release()

    published.publishes(1)
    eventually("nothing hangs", hung, lambda what: what == "")


def test_what_is_not_published_is_told_with_its_reason(
    server: EmbeddedApiServer, published: Published
) -> None:
    why_not = published.publisher.why_not_published
    assert "no kubelet plugin" in why_not()
    server.fail("create", "resourceslices", code=403, times=ALWAYS)

    published.start(gpus(1))

    eventually("the refusal is told", why_not, lambda why: "403" in why)
    server.faults.clear()
    published.publishes(1)
    eventually("all is published", why_not, lambda why: why == "")


def test_a_controller_is_ready_before_its_turn_only_while_another_one_publishes(published: Published) -> None:
    publisher = published.publisher
    publisher.stand_by()

    published.start(gpus(1))
    assert publisher.why_not_published() == "the slices have not been compared yet"
    publisher.another_publishes()
    assert publisher.why_not_published() == ""

    publisher.has_turn()
    published.publishes(1)
    eventually("all is published", publisher.why_not_published, lambda why: why == "")
