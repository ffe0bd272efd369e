"""The channels of cliques and the labels of their nodes are as the nodes' slices say, whatever happens."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from controller.cliques.publisher import CliquePublisher
from driver.devices.names import CHANNELS_DRIVER_NAME, CLIQUE_LABEL
from driver.kinds.channel import KEPT_BACK
from tests.clusters import EmbeddedApiServer, EventRecorder, KubeClient, Object, paths, plan_node
from tests.eventually import eventually
from tests.gpus import EventReason

CLUSTER = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72"
CLIQUE, OTHER = f"{CLUSTER}.4026", f"{CLUSTER}.4027"
DRA = "/apis/resource.k8s.io/v1"


class Replica:
    """A publisher of three channels a clique, with its threads."""

    def __init__(self, client: KubeClient, heard: EventRecorder, *, leads: bool = True) -> None:
        self.leads = leads
        self._stop = threading.Event()
        self.publisher = CliquePublisher(
            client, lambda: self.leads, heard, self._stop, 3, contextlib.nullcontext, lambda: None
        )
        runs = (*(one.run for _, one in self.publisher.reflectors()), self.publisher.run)
        self._threads = [threading.Thread(target=run) for run in runs]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End it as a process ends."""
        self._stop.set()
        for _, one in self.publisher.reflectors():
            one.wake()
        self.publisher.wake()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


class Died(BaseException):
    """The process ends here."""


class Heard(EventRecorder):
    """Keeps what was posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, EventReason]] = []

    def post(self, about: Any, reason: EventReason, message: str) -> None:
        assert CLIQUE_LABEL in message
        self.posted.append((about.name, reason))


class Rack:
    """A cluster with trays, and what is published for it."""

    def __init__(self, server: EmbeddedApiServer, client: KubeClient) -> None:
        self.server, self.client, self.heard = server, client, Heard()
        self.replicas: list[Replica] = []

    def begin(self, *, leads: bool = True) -> Replica:
        """A replica that begins now."""
        self.replicas.append(Replica(self.client, self.heard, leads=leads))
        return self.replicas[-1]

    def add(self, node: str, clique: str = CLIQUE, labels: dict[str, str] | None = None) -> None:
        """A tray that publishes its GPUs."""
        self.server.create("/api/v1/nodes", {"metadata": {"name": node, "labels": labels or {}}})
        self.set_ready(node, "True")
        self.publish(node, clique)

    def publish(self, node: str, clique: str) -> None:
        """Have the tray say that its GPUs are in this clique, or in none."""
        self.wipe(self.slices(node))
        for item in plan_node("gb200-tray", node, None).slices:
            for device in item["spec"].get("devices", ()):
                device["attributes"].pop("fabricClique", None)
                if clique:
                    device["attributes"]["fabricClique"] = {"string": clique}
            self.server.create(f"{DRA}/resourceslices", item)

    def stored(self) -> list[Object]:
        """The slices of everybody."""
        return self.server.objects("resourceslices", "resource.k8s.io")

    def wipe(self, slices: Iterable[Object]) -> None:
        """Delete them."""
        for one in slices:
            self.server.delete(f"{DRA}/resourceslices/{one['metadata']['name']}")

    def slices(self, node: str) -> list[Object]:
        """The slices of a tray."""
        return [one for one in self.stored() if one["spec"].get("nodeName") == node]

    def set_ready(self, node: str, status: str, *taints: str) -> None:
        """Have the node be ready or not, with these taints."""
        spec = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints] or None}
        conditions = [{"type": "Ready", "status": status}]
        self._patch(paths.node(node), {"spec": spec})
        self._patch(f"{paths.node(node)}/status", {"status": {"conditions": conditions}})

    def give(self, claim: str, number: int, clique: str = CLIQUE) -> None:
        """A claim of the namespace team that was allocated a channel."""
        exactly = {"deviceClassName": "nvlink-channel"}
        spec = {"devices": {"requests": [{"name": "channel", "exactly": exactly}]}}
        folder = f"{DRA}/namespaces/team/resourceclaims"
        self.server.create(folder, {"metadata": {"name": claim}, "spec": spec})
        given = {"request": "channel", "driver": CHANNELS_DRIVER_NAME, "pool": clique}
        results = [{**given, "device": f"channel-{number}"}]
        self._patch(f"{folder}/{claim}/status", {"status": {"allocation": {"devices": {"results": results}}}})

    def _patch(self, path: str, body: Object) -> None:
        self.client.patch(path, body, "application/merge-patch+json")

    def begin_gang(self, *nodes: str) -> None:
        """A gang with channel 2, a pod on each of these nodes."""
        self.give("gang", 2)
        asks = [{"name": "channel", "resourceClaimName": "gang"}]
        spec = {"containers": [{"name": "main", "image": "train"}], "resourceClaims": asks}
        for number, node in enumerate(nodes):
            pod = {"metadata": {"name": f"gang-{number}"}, "spec": {**spec, "nodeName": node}}
            self.server.create("/api/v1/namespaces/team/pods", pod)

    def pools(self) -> dict[str, list[Object]]:
        """The specs of complete pools of channels, by their name."""
        found: dict[str, list[Object]] = {}
        for one in self.stored():
            if one["spec"]["driver"] == CHANNELS_DRIVER_NAME:
                found.setdefault(one["spec"]["pool"]["name"], []).append(one["spec"])
        return {
            pool: specs
            for pool, specs in found.items()
            if {spec["pool"]["resourceSliceCount"] for spec in specs} == {len(specs)}
            and len({spec["pool"]["generation"] for spec in specs}) == 1
        }

    def channels(self) -> dict[str, list[str]]:
        """The channels of each pool, with a star where a claim cannot get it."""

        def shown(device: Object) -> str:
            taints = [one["key"] for one in device.get("taints", ())]
            return str(device["name"]) + "*" * (KEPT_BACK in taints)

        pools = self.pools().items()
        return {pool: [shown(one) for spec in specs for one in spec["devices"]] for pool, specs in pools}

    def labels(self) -> dict[str, str]:
        """The clique that each node's label names; nodes without one are left out."""
        nodes = [one["metadata"] for one in self.server.objects("nodes")]
        return {
            one["name"]: one["labels"][CLIQUE_LABEL] for one in nodes if CLIQUE_LABEL in one.get("labels", {})
        }

    def becomes(self, read: Callable[[], object], wanted: object) -> None:
        """Wait until it is so."""
        eventually(f"it becomes {wanted}", read, lambda found: found == wanted)


@pytest.fixture
def rack(server: EmbeddedApiServer, client: KubeClient) -> Iterator[Rack]:
    """A cluster with one tray."""
    rack = Rack(server, client)
    rack.add("tray-0")
    yield rack
    for replica in rack.replicas:
        replica.end()
    client.close()


THREE = ["channel-1", "channel-2", "channel-3"]
KEPT_BACK_2 = {CLIQUE: ["channel-1", "channel-2*", "channel-3"]}


def test_each_clique_has_channels_for_its_nodes_alone_and_they_have_its_label(rack: Rack) -> None:
    rack.add("tray-1")
    rack.add("other-0", OTHER)
    rack.begin()

    rack.becomes(rack.channels, {CLIQUE: THREE, OTHER: THREE})
    rack.becomes(rack.labels, {"tray-0": CLIQUE, "tray-1": CLIQUE, "other-0": OTHER})
    [spec] = rack.pools()[OTHER]
    expression = {"key": CLIQUE_LABEL, "operator": "In", "values": [OTHER]}
    assert spec["nodeSelector"] == {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    assert "nodeName" not in spec
    attributes = {"type": {"string": "channel"}, "id": {"int": 2}, "clique": {"string": OTHER}}
    assert spec["devices"][1]["attributes"] == attributes


def test_a_node_that_changes_its_clique_has_another_label_and_claims_keep_their_channel(
    rack: Rack,
) -> None:
    rack.begin()
    rack.becomes(rack.labels, {"tray-0": CLIQUE})
    rack.give("gang", 2)
    rack.publish("tray-0", OTHER)
    rack.becomes(rack.labels, {"tray-0": OTHER})
    rack.becomes(rack.channels, {CLIQUE: ["channel-2"], OTHER: THREE})
    rack.server.delete(f"{DRA}/namespaces/team/resourceclaims/gang")
    rack.becomes(rack.channels, {OTHER: THREE})
    rack.publish("tray-0", "")
    rack.becomes(rack.labels, {})
    rack.becomes(rack.channels, {})


def test_a_label_that_is_removed_comes_back_and_one_of_somebody_else_is_told_of_and_left_alone(
    rack: Rack,
) -> None:
    rack.add("tray-1", labels={CLIQUE_LABEL: OTHER})
    rack.add("tray-2", labels={CLIQUE_LABEL: CLIQUE})
    rack.begin()
    rack.becomes(lambda: rack.heard.posted, [("tray-1", EventReason.CLIQUE_LABEL_WRONG)])
    rack.becomes(rack.labels, {"tray-0": CLIQUE, "tray-1": OTHER, "tray-2": CLIQUE})
    patch = {"metadata": {"labels": {CLIQUE_LABEL: None}}}
    rack.client.patch(paths.node("tray-0"), patch, "application/merge-patch+json")
    rack.becomes(rack.labels, {"tray-0": CLIQUE, "tray-1": OTHER, "tray-2": CLIQUE})
    rack.publish("tray-2", "")
    rack.publish("tray-0", "")
    rack.becomes(rack.labels, {"tray-1": OTHER, "tray-2": CLIQUE})


def test_a_node_whose_kubelet_has_just_wiped_its_slices_keeps_its_label(rack: Rack) -> None:
    rack.begin()
    rack.becomes(rack.labels, {"tray-0": CLIQUE})
    rack.add("tray-1", OTHER)
    rack.wipe(rack.slices("tray-0"))
    rack.becomes(rack.channels, {OTHER: THREE})
    assert rack.labels()["tray-0"] == CLIQUE


def test_a_channel_that_a_pod_on_a_lost_node_has_is_kept_back_until_the_node_is_back(rack: Rack) -> None:
    rack.add("tray-1")
    rack.begin_gang("tray-0", "tray-1")
    first = rack.begin()
    rack.becomes(rack.channels, {CLIQUE: THREE})

    rack.set_ready("tray-0", "Unknown")
    rack.becomes(rack.channels, KEPT_BACK_2)
    # As an admin does it who does not know whether the machine is off.
    rack.server.delete("/api/v1/namespaces/team/pods/gang-0")
    rack.server.delete(f"{DRA}/namespaces/team/resourceclaims/gang")
    first.end()
    second = rack.begin()
    rack.add("other-0", OTHER)
    rack.becomes(rack.channels, {**KEPT_BACK_2, OTHER: THREE})
    told = {(*one.labels.values(),): one.value for one in second.publisher.numbers()}
    assert told[(CLIQUE,)] == told[CLIQUE, "free"] == 2
    assert (told[CLIQUE, "held"], told[CLIQUE, "kept-back"]) == (0, 1)

    rack.set_ready("tray-0", "True")
    rack.becomes(rack.channels, {CLIQUE: THREE, OTHER: THREE})


def test_what_is_kept_back_is_not_forgotten_when_the_server_refuses_the_write(rack: Rack) -> None:
    rack.begin_gang("tray-0")
    rack.begin()
    rack.becomes(rack.channels, {CLIQUE: THREE})
    fault = rack.server.fail("update", "resourceslices", code=500, times=1)
    rack.set_ready("tray-0", "Unknown")
    rack.becomes(rack.channels, KEPT_BACK_2)
    assert fault.times == 0


def test_a_node_that_an_admin_says_is_off_keeps_nothing_back(rack: Rack) -> None:
    rack.begin_gang("tray-0")
    rack.begin()
    rack.set_ready("tray-0", "Unknown")
    rack.becomes(rack.channels, KEPT_BACK_2)
    rack.set_ready("tray-0", "Unknown", "node.kubernetes.io/out-of-service")
    rack.becomes(rack.channels, {CLIQUE: THREE})


def test_of_two_replicas_one_writes_and_the_other_goes_on_where_it_ended(rack: Rack) -> None:
    first, second = rack.begin(), rack.begin(leads=False)
    rack.becomes(rack.channels, {CLIQUE: THREE})
    first.leads, second.leads = False, True
    rack.add("other-0", OTHER)
    rack.becomes(rack.channels, {CLIQUE: THREE, OTHER: THREE})
    assert [spec["pool"]["generation"] for specs in rack.pools().values() for spec in specs] == [1, 1]


@pytest.mark.parametrize("writes", range(5))
def test_a_publisher_may_die_after_any_write(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    rack.add("other-0", OTHER)
    rack.begin_gang("tray-0")
    rack.set_ready("tray-0", "Unknown")
    first, left = rack.begin(leads=False), [None] * writes
    assert all(one.synced.wait(20) for _, one in first.publisher.reflectors())

    def dying(request: Callable[..., Object]) -> Callable[..., Object]:
        def call(*given: Any, **more: Any) -> Object:
            if not left:
                raise Died
            left.pop()
            return request(*given, **more)

        return call

    with monkeypatch.context() as process, contextlib.suppress(Died):
        for verb in ("create", "replace", "patch", "delete"):
            process.setattr(rack.client, verb, dying(getattr(rack.client, verb)))
        first.publisher.sync()
    first.end()
    assert (len(rack.labels()) == 2) is (writes == 4), "all of its writes were tried"
    rack.begin()

    rack.becomes(rack.channels, {**KEPT_BACK_2, OTHER: THREE})
    rack.becomes(rack.labels, {"tray-0": CLIQUE, "other-0": OTHER})


def test_slices_that_are_deleted_by_hand_come_back(rack: Rack) -> None:
    rack.begin()
    rack.becomes(rack.channels, {CLIQUE: THREE})
    rack.wipe(one for one in rack.stored() if one["spec"]["driver"] == CHANNELS_DRIVER_NAME)
    rack.becomes(rack.channels, {CLIQUE: THREE})


def test_the_channels_belong_to_the_role_of_the_process_and_go_with_it(rack: Rack) -> None:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    role = {**head, "metadata": {"name": "gpu-dra-cliques"}}
    made = rack.server.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    rack.begin()
    rack.becomes(rack.channels, {CLIQUE: THREE})
    owners = [
        one["metadata"].get("ownerReferences") for one in rack.stored() if "nodeName" not in one["spec"]
    ]
    assert owners == [[{**head, "name": "gpu-dra-cliques", "uid": made["metadata"]["uid"]}]]
