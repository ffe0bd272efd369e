"""Posts what people have to know about a node as events of the Node, where kubectl describe shows it."""

from __future__ import annotations

from driver.event_reasons import EventReason
from driver.kube.events import EventRecorder, Reference


class NodeEvents:
    """The events of one node; safe to use from every thread.

    ``uid`` is the Node's UID once it is known. Until then its name stands in for it, as in the kubelet's own
    events: kubectl describe looks for both.
    """

    def __init__(self, recorder: EventRecorder, node: str) -> None:
        self._recorder = recorder
        self._node = node
        self.uid = ""

    def post(self, reason: EventReason, message: str) -> None:
        """Post an event soon; returns at once and never raises."""
        self._recorder.post(Reference("v1", "Node", self._node, self.uid or self._node), reason, message)
