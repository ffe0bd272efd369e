"""Keeps the pools of channels and the labels of nodes as they should be, while this replica has the Lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from controller.cliques.wanted import Doubt, doubts_in, is_away, node_value, pools
from controller.observe.allocations import claims_of_node
from controller.publish.own_writes import OwnWrites
from controller.publish.slice_diff import generate_name, plan_sync
from driver.devices.names import CHANNELS_DRIVER_NAME, CLIQUE_LABEL, DRIVER_NAME
from driver.errors import ApiError
from driver.event_reasons import EventReason
from driver.kinds.channel import Channel, Claim, allocated, clique_states, cliques_of
from driver.kube.backoff import Backoff
from driver.kube.client import PATIENT_SECONDS, KubeClient
from driver.kube.errors import Conflict, NotFound
from driver.kube.events import EventRecorder, Reference
from driver.kube.paths import NODES, RESOURCE_SLICES, object_path
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger
from driver.process.metrics.table import Reading
from driver.process.service import Service
from driver.slices.specs import Spec, taint_times

Object = dict[str, Any]

NAME = "gpu-dra-cliques"
"""The process in logs, in events, and as the owner of labels that it sets."""

_ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_RESYNC_SECONDS = 600.0
_HEAD = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}

_log = get_logger("cliques")


class CliquePublisher:
    """Watches the nodes, their slices and the claims for channels; ``run`` writes what follows from them.

    ``channels`` is how many each clique gets, ``restarted`` hears of each watch that ends. Of several
    replicas the one for which ``is_leader()`` writes.
    """

    def __init__(
        self,
        client: KubeClient,
        is_leader: Callable[[], bool],
        events: EventRecorder,
        stop: threading.Event,
        channels: int,
        at_work: Callable[[], AbstractContextManager[object]],
        restarted: Callable[[], None],
    ) -> None:
        self._client = client
        self._is_leader = is_leader
        self._events = events
        self._stop = stop
        self._channels = channels
        self._at_work = at_work
        self._restarted = restarted
        self._changed = threading.Event()
        self._gpu_slices = self._reflector(RESOURCE_SLICES, {"spec.driver": DRIVER_NAME})
        self._own_slices = self._reflector(RESOURCE_SLICES, {"spec.driver": CHANNELS_DRIVER_NAME})
        self._nodes = self._reflector(NODES, {})
        self._claims = self._reflector(_CLAIMS, {}, lambda item: any(allocated([item])))
        self._own_writes = OwnWrites(self._own_slices.snapshot)
        self._backoff = Backoff(0.2, 30.0)
        # The nodes whose pods were read since they are away, and whose channels are kept back by now.
        self._looked: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def start(self, service: Service) -> None:
        """Begin to watch and to write, until the service ends."""
        for name, one in self.reflectors():
            service.spawn(f"watch-{name}", one.run, one.wake)
        service.spawn("cliques", self.run, self.wake)

    def numbers(self) -> Iterator[Reading]:
        """How many nodes and channels each clique has."""
        slices = (*self._gpu_slices.snapshot()[0], *self._own_slices.snapshot()[0])
        for one in clique_states(slices, self._claims.snapshot()[0]):
            yield Reading("gpu_dra_cliques_nodes", {"clique": one.name}, len(one.nodes))
            for state, count in (("free", one.free), ("held", one.held), ("kept-back", one.kept_back)):
                yield Reading("gpu_dra_cliques_channels", {"clique": one.name, "state": state}, count)

    def why_not(self) -> str:
        """What is not up to date, as a sentence for people; empty if everything is."""
        behind = [name for name, one in self.reflectors() if not one.watching.is_set()]
        return f"not watched at the moment: {', '.join(behind)}" if behind else ""

    def wake(self) -> None:
        """Look again now."""
        self._changed.set()

    def run(self) -> None:
        """Write whenever something has changed, until the process stops."""
        wait_seconds = _RESYNC_SECONDS
        while not self._stop.is_set():
            self._changed.wait(wait_seconds)
            if self._stop.is_set():
                return
            self._changed.clear()
            wait_seconds = _RESYNC_SECONDS
            if not self._is_leader() or not all(one.synced.is_set() for _, one in self.reflectors()):
                # Another replica may have looked at nodes and written slices meanwhile.
                self._looked.clear()
                continue
            try:
                with self._at_work():
                    self.sync()
                self._backoff.reset()
            except ApiError as error:
                wait_seconds = self._backoff.next_seconds(error)
                _log.warning("cannot publish", error=str(error), again_in_seconds=round(wait_seconds, 1))

    def sync(self) -> None:
        """Write what differs once. Raises ApiError."""
        nodes = {str(one["metadata"]["name"]): one for one in self._nodes.snapshot()[0]}
        slices = self._gpu_slices.snapshot()[0]
        cliques = {node: clique for node, clique in cliques_of(slices).items() if node in nodes}
        held = list(allocated(self._claims.snapshot()[0]))
        stored = self._own_writes.objects()
        away = {node for node in cliques if is_away(nodes[node])}
        doubts = self._doubts(away, held, stored)
        wanted = pools(cliques.values(), self._channels, doubts, (channel for _, channel in held))
        for pool, specs in wanted.items():
            self._write(pool, specs, [one for one in stored if one["spec"]["pool"]["name"] == pool])
        for item in stored:
            if item["spec"]["pool"]["name"] not in wanted:
                self._delete(item)
        self._looked = away
        told = {str(one["spec"].get("nodeName")) for one in slices if one["spec"].get("devices")}
        for name, node in nodes.items():
            self._label(node, cliques.get(name), tells=name in told)

    def _doubts(
        self,
        away: set[str],
        held: Iterable[tuple[Claim, Channel]],
        stored: Iterable[Object],
    ) -> set[Doubt]:
        """The channels that pods on nodes that are away may still have.

        Those of a node are read once, when it has just gone away: later its pods may be deleted by force,
        although their containers go on. From then on the taints of the slices say so.
        """
        values = {node_value(node) for node in away}
        doubts = {doubt for doubt in doubts_in(stored) if doubt.node_value in values}
        for node in away - self._looked:
            claims = claims_of_node(self._client, node)
            doubts |= {Doubt(channel, node_value(node)) for claim, channel in held if claim in claims}
        return doubts

    def _write(self, pool: str, specs: tuple[Spec, ...], stored: list[Object]) -> None:
        times = taint_times(specs, (item["spec"] for item in stored), {})
        plan = plan_sync(specs, stored, times)
        for item in plan.deletes:
            self._delete(item)
        for update in plan.updates:
            path = object_path(RESOURCE_SLICES, update.stored["metadata"]["name"])
            body = {**update.stored, "spec": update.spec}
            self._own_writes.wrote(self._client.replace(path, body, timeout_seconds=PATIENT_SECONDS))
        for create in plan.creates:
            name = generate_name(create.index, CHANNELS_DRIVER_NAME, pool)
            metadata = {"generateName": name, "ownerReferences": self._owners()}
            body = {**_HEAD, "metadata": metadata, "spec": create.spec}
            made = self._client.create(RESOURCE_SLICES, body, timeout_seconds=PATIENT_SECONDS)
            self._own_writes.wrote(made)
        if not plan.empty:
            _log.info("channels published", clique=pool, slices=len(specs))

    def _owners(self) -> list[Object]:
        """What the slices belong to: the role of this process. When the driver is removed, they are deleted.

        Raises ApiError.
        """
        try:
            role = self._client.get(_ROLE, timeout_seconds=PATIENT_SECONDS)["metadata"]
        except NotFound:  # it runs with the rights of somebody else
            return []
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        return [{**head, "name": role["name"], "uid": role["uid"]}]

    def _delete(self, item: Object) -> None:
        metadata = item["metadata"]
        path, version = object_path(RESOURCE_SLICES, metadata["name"]), metadata["resourceVersion"]
        with suppress(NotFound):
            self._client.delete(path, uid=metadata["uid"], resource_version=version)
        self._own_writes.deleted(item)

    def _label(self, node: Object, clique: str | None, *, tells: bool) -> None:
        """Have the node's label say its clique, unless somebody else has set the label.

        A node that publishes nothing now, since its kubelet has just begun, keeps its label.
        """
        metadata = node["metadata"]
        now = (metadata.get("labels") or {}).get(CLIQUE_LABEL)
        if now == clique or (clique is None and not (tells and _is_ours(metadata))):
            return
        name = str(metadata["name"])
        labels = {} if clique is None else {CLIQUE_LABEL: clique}
        body: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        try:
            # Applied, so that the server knows whose label it is, and refuses one that somebody else has set.
            self._client.patch(
                object_path(NODES, name), body, "application/apply-patch+yaml", {"fieldManager": NAME}
            )
        except NotFound:
            return
        except Conflict:
            self._tell_foreign(metadata, str(now), str(clique))
            return
        _log.info("node labelled", node=name, clique=clique or "none")

    def _tell_foreign(self, metadata: Object, now: str, clique: str) -> None:
        if (now, clique) in self._told:
            return
        self._told.add((now, clique))
        text = (
            f"the label {CLIQUE_LABEL} of this node is {now}, but its GPUs are in the clique {clique}: "
            "correct or remove it, since pods of gangs are scheduled by it"
        )
        _log.warning("the label of a node is wrong and somebody else's", node=metadata["name"], label=now)
        self._events.post(
            Reference("v1", "Node", metadata["name"], metadata["uid"]), EventReason.CLIQUE_LABEL_WRONG, text
        )

    def reflectors(self) -> tuple[tuple[str, Reflector], ...]:
        """What is watched, with names for people."""
        slices = ("slices of GPUs", self._gpu_slices), ("slices of channels", self._own_slices)
        return (*slices, ("nodes", self._nodes), ("claims", self._claims))

    def _reflector(
        self, path: str, fields: dict[str, str], concerns: Callable[[Object], bool] = lambda _item: True
    ) -> Reflector:
        def failed(error: ApiError, wait_seconds: float) -> None:
            self._restarted()
            _log.warning("cannot watch", path=path, error=str(error), wait_seconds=round(wait_seconds, 1))

        return Reflector(
            self._client,
            Selection(path, fields, {}),
            self._stop,
            on_event=lambda _kind, _item: self.wake(),
            on_list=lambda _count: self.wake(),
            on_failure=failed,
            concerns=concerns,
        )


def _is_ours(metadata: Object) -> bool:
    """Whether this process has set the label of a node."""
    label = f"f:{CLIQUE_LABEL}"
    return any(
        one.get("manager") == NAME
        and label in one.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
        for one in metadata.get("managedFields") or ()
    )
