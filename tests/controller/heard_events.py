"""Events of a node that a test can look at."""

from controller.observe.node_events import NodeEvents
from tests.gpus import EventReason


class HeardEvents(NodeEvents):
    """Keeps what was posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str]] = []

    def post(self, reason: EventReason, message: str) -> None:
        self.posted.append((reason.severity, reason.word, message))
