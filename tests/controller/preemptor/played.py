"""A preemptor whose rounds a test starts one by one, on what the scene stores at that moment."""

import threading
from contextlib import nullcontext
from typing import Any

from controller.preemptor.evict import Allowance, Evictor
from controller.preemptor.preemptor import Behaviour, Preemptor
from controller.preemptor.steps_aside import SchedulerPreempts, Setting
from controller.preemptor.watch import Kind, Stored, Watch
from driver.kube.lease import Lease
from tests.clock import Clock
from tests.clusters import EventRecorder, Metrics, Reference
from tests.controller.preemptor.scene import Scene
from tests.gpus import EventReason

_STORED: dict[Kind, tuple[str, str]] = {
    "pods": ("pods", ""),
    "claims": ("resourceclaims", "resource.k8s.io"),
    "slices": ("resourceslices", "resource.k8s.io"),
    "nodes": ("nodes", ""),
    "classes": ("deviceclasses", "resource.k8s.io"),
    "budgets": ("poddisruptionbudgets", "policy"),
    "taint_rules": ("devicetaintrules", "resource.k8s.io"),
}


class Ticking(Clock):
    """A clock of which each look takes ``step`` seconds."""

    step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Heard(EventRecorder):
    """Keeps what was posted: the name of the pod, the reason, the message."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str]] = []

    def post(self, about: Reference, reason: EventReason, message: str) -> None:
        self.posted.append((about.name, reason.word, message))


class Played:
    """The preemptor of a scene, its clock, and its events."""

    def __init__(
        self,
        scene: Scene,
        behaviour: Behaviour | None = None,
        *,
        identity: str = "one",
        per_minute: int = 30,
        scheduler: Setting = "no",
    ) -> None:
        self.scene = scene
        self.clock, self.cpu = Clock(1000.0), Ticking()
        self.heard = Heard()
        stop = threading.Event()
        self.lease = Lease(scene.client, "gpu-dra", "preemptor", identity, stop, clock=self.clock)
        self.metrics = Metrics("preemptor")
        self.preemptor = Preemptor(
            scene.client,
            lambda changed: Watch(scene.client, stop, changed),
            self.lease,
            SchedulerPreempts(scene.client, scheduler),
            Evictor(scene.client, self.lease.is_held, Allowance(per_minute, self.clock)),
            self.heard,
            self.metrics,
            behaviour or Behaviour(),
            stop,
            nullcontext,
            self.clock,
            self.cpu,
        )
        self._version = 0

    def round(self, *, changed: bool = True) -> float:
        """One round on what is stored now; with ``changed`` it counts as another moment than the last one."""
        self.lease.try_once()
        self._version += changed
        return self.preemptor.round(self.stored())

    def stored(self) -> Stored:
        """What is stored now."""
        objects = {kind: self.scene.server.objects(*names) for kind, names in _STORED.items()}
        return Stored(objects, self._version, self._version)

    def told(self, reason: EventReason) -> set[str]:
        """The pods with an event of this reason."""
        return {name for name, word, _ in self.heard.posted if word == reason.word}

    def text(self, reason: EventReason) -> str:
        """The message of the last event of this reason."""
        return [message for _, word, message in self.heard.posted if word == reason.word][-1]

    def number(self, name: str, **labels: Any) -> float | None:
        """The value of a metric."""
        return self.metrics.registry.get_sample_value(name, labels)
