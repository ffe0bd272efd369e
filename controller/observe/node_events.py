"""Posts what people have to know about a node as events of the Node, which kubectl describe shows."""

from __future__ import annotations

from driver.event_reasons import EventReason
from driver.kube.events import EventRecorder, Reference


class NodeEvents:
    """The events of one node; safe to use from every thread. ``uid`` is the Node's UID, empty if unknown."""

    def __init__(self, recorder: EventRecorder, node: str) -> None:
        self._recorder = recorder
        self._node = node
        self.uid = ""

    def post(self, reason: EventReason, message: str) -> None:
        """Post an event soon; returns at once and never raises."""
        # Without a UID the Node's name takes its place, as in the kubelet's own events: kubectl describe
        # finds events with either of them.
        self._recorder.post(Reference("v1", "Node", self._node, self.uid or self._node), reason, message)
