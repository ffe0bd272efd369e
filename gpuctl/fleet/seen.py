"""What ``status`` reads of a cluster, once or by watches, and what is wrong there that no node shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.event_reasons import EventReason
from driver.kube.errors import Forbidden
from driver.kube.paths import events_path
from driver.kube.reflector import Selection
from gpuctl.cli.cluster import DRA, ClusterView, event_time
from gpuctl.cli.output import in_one_line, some_of
from gpuctl.fleet.holders import claim_key
from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.pods import (
    NOT_PREPARED,
    asks_devices,
    condition_of,
    has_ended,
    lacks_claim,
    not_prepared,
    stuck_containers,
    why_not_ready,
)

Object = Mapping[str, Any]

OF_DRIVER = "app.kubernetes.io/part-of=gpu-dra"
"""The label that the chart and the manifests give to all pods of the driver."""

_NAME = "app.kubernetes.io/name"
_CONTROLLER = "gpu-dra-controller"
_ON_NODES = (_CONTROLLER, "gpu-dra-kubeletplugin", "gpu-dra-mps")

SELECTIONS = {
    "slices": Selection(f"{DRA}/resourceslices", {}, {}),
    "claims": Selection(f"{DRA}/resourceclaims", {}, {}),
    "pending": Selection("/api/v1/pods", {"status.phase": "Pending"}, {}),
    "driver_pods": Selection("/api/v1/pods", {}, {}, labels=OF_DRIVER),
    # Only these fields of events can be selected by. The controller reports about its Node in this namespace.
    "not_prepared": Selection("/api/v1/events", {"reason": NOT_PREPARED}, {}),
    "said": Selection(events_path("default"), {"reportingComponent": _CONTROLLER, "type": "Warning"}, {}),
    "cordoned": Selection("/api/v1/nodes", {"spec.unschedulable": "true"}, {}),
}
"""What is read, by the fields of ``Seen``."""

OPTIONAL = {
    "pending": "pods",
    "driver_pods": "pods",
    "not_prepared": "events",
    "said": "events",
    "cordoned": "nodes",
}
"""What not every user may read, with the name of the kind."""

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster at one moment; ``unread`` are the kinds that this user may not read.

    ``pending`` are the pods of this phase, ``driver_pods`` those of the driver. ``not_prepared`` are the
    kubelets' events about pods whose claims cannot be prepared, ``said`` the controllers' warnings.
    ``cordoned`` are Nodes.
    """

    slices: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    pending: Sequence[Object] = ()
    driver_pods: Sequence[Object] = ()
    not_prepared: Sequence[Object] = ()
    said: Sequence[Object] = ()
    cordoned: Sequence[Object] = ()
    unread: tuple[str, ...] = ()

    @classmethod
    def read(cls, view: ClusterView) -> Seen:
        """Read everything once; raises ApiError."""
        found: dict[str, Sequence[Object]] = {}
        unread: dict[str, None] = {}
        for name, one in SELECTIONS.items():
            # A list of all events is dear, and only pods that are placed and do not start have this one.
            if name == "not_prepared" and not any(pod["spec"].get("nodeName") for pod in found["pending"]):
                continue
            selectors = {
                "fieldSelector": ",".join(f"{path}={value}" for path, value in one.fields.items()),
                "labelSelector": one.labels,
            }
            try:
                found[name] = view.listed(one.path, **{key: text for key, text in selectors.items() if text})
            except Forbidden:
                if name not in OPTIONAL:
                    raise
                found[name], unread[OPTIONAL[name]] = (), None
        return cls(**found, unread=tuple(unread))

    def problems(self, nodes: Sequence[NodeView]) -> list[str]:
        """What is wrong that the states of these nodes do not show, a sentence each, with what to do."""
        published = {one.name: frozenset(gpu.pci for gpu in one.gpus) for one in nodes if one.gpus}
        troubles = (line for one in nodes for line in _troubles(one))
        return [
            *self._of_driver({one.name for one in nodes}),
            *said_lines(self.said, published),
            *troubles,
            *self._of_pods(),
        ]

    def told(self, nodes: Sequence[NodeView]) -> list[str]:
        """The problems, and which of these nodes are cordoned, which is no fault."""
        names = {one["metadata"]["name"] for one in self.cordoned}
        found = [one.name for one in nodes if one.gpus and one.name in names]
        what = "is cordoned: its" if len(found) == 1 else "are cordoned: their"
        told = [f"{some_of(found, _MOST_NAMED)} {what} free devices get no new pods"] if found else []
        return [*self.problems(nodes), *told]

    def _of_driver(self, known: Collection[str]) -> Iterator[str]:
        """What is wrong with the driver's pods; ``known`` are the nodes that publish GPUs, or should."""
        unready = [
            f"{claim_key(pod)} on {pod['spec'].get('nodeName') or 'no node'} ({why})"
            for pod in self.driver_pods
            if (why := why_not_ready(pod))
        ]
        yield from _counted(unready, "of the driver is not ready", "of the driver are not ready", "doctor")
        left: dict[str, set[str]] = {}
        for pod in self.driver_pods:
            node, name = pod["spec"].get("nodeName"), (pod["metadata"].get("labels") or {}).get(_NAME)
            if node not in (None, *known) and name in _ON_NODES and not has_ended(pod):
                left.setdefault(node, set()).add(name)
        # On a node without a GPU the controller runs and publishes nothing.
        silent = [node for node, names in left.items() if _CONTROLLER not in names]
        if silent:
            what = f"no {_CONTROLLER} runs there, only other pods of the driver; gpuctl doctor says why"
            yield f"{some_of(silent, _MOST_NAMED)}: {what}"

    def _of_pods(self) -> Iterator[str]:
        failures: dict[str, list[Object]] = {}
        for event in sorted(self.not_prepared, key=event_time):
            failures.setdefault(str((event.get("involvedObject") or {}).get("uid")), []).append(event)
        waiting, starting = [], []
        claims = {claim_key(claim) for claim in self.claims}
        unplaced: dict[str, list[str]] = {}
        for pod in filter(asks_devices, self.pending):
            placed = condition_of(pod, "PodScheduled")
            if pod["spec"].get("nodeName"):
                events = failures.get(str(pod["metadata"].get("uid")), ())
                if any(stuck_containers(pod)) or not_prepared(pod, events):
                    starting.append(claim_key(pod))
            elif placed.get("reason") == "Unschedulable" or (not placed and lacks_claim(pod, claims)):
                waiting.append(claim_key(pod))
            elif placed.get("reason") == "SchedulerError":
                unplaced.setdefault(in_one_line(str(placed.get("message"))), []).append(claim_key(pod))
        yield from _counted(waiting, "waits for devices", "wait for devices", "explain")
        yield from _counted(starting, "cannot start", "cannot start", "explain")
        for message, pods in unplaced.items():
            yield f"the scheduler gives up {some_of(pods, _MOST_NAMED)}: {message}; gpuctl explain says more"


def said_lines(events: Iterable[Object], published: Mapping[str, Collection[str | None]]) -> Iterator[str]:
    """What controllers have said about what their nodes do not publish, a line for each reason.

    ``published`` are the PCI addresses of the GPUs of each node that publishes any.
    """
    by_reason: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for event in events:
        # A sick GPU is published with a taint; once that is gone, the event is out of date.
        if event.get("reason") == EventReason.GPU_SICK.word:
            continue
        node = str((event.get("involvedObject") or {}).get("name"))
        what, not_offered, reason = in_one_line(str(event.get("message") or "")).partition(
            " is not offered: "
        )
        # A GPU that is published has taints, which say what is wrong with it now.
        if node not in published or (not_offered and what.removeprefix("GPU ") not in published[node]):
            key = (not_offered, reason) if not_offered else ("", what)
            by_reason.setdefault(key, {})[node, what] = None
    for (not_offered, reason), found in by_reason.items():
        nodes = some_of(list(dict.fromkeys(node for node, _ in found)), _MOST_NAMED)
        gpus = f"{next(iter(found))[1]} is" if len(found) == 1 else f"{len(found)} GPUs are"
        yield f"{nodes}: {gpus} not offered: {reason}" if not_offered else f"{nodes}: {reason}"


def _troubles(node: NodeView) -> Iterator[str]:
    """What claims cannot use although no taint and no memory limit says why."""
    shares = (share for gpu in node.state.memory for share in gpu.shares)
    known = {(share.claim, share.device) for share in shares if share.not_held}
    known |= {(one.claim, one.device) for gpu in node.gpus if gpu.taints for one in gpu.holdings}
    for one in node.not_ready:
        if (one.claim, one.device) not in known:
            yield f"{node.name}: claim {one.claim} cannot use {one.device}: {in_one_line(one.trouble or '')}"


def _counted(pods: list[str], one: str, several: str, command: str) -> Iterator[str]:
    if pods:
        count = f"1 pod {one}" if len(pods) == 1 else f"{len(pods)} pods {several}"
        yield f"{count}: {some_of(pods, _MOST_NAMED)}; gpuctl {command} says why"
