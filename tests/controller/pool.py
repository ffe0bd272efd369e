"""The pool of a node as a controller changes it, without an API server."""

import time
from dataclasses import replace

from controller.publish.changeover import Published, Seen, published
from tests.clusters import Backoff, Changeover, with_blocked
from tests.controller import mig_node
from tests.controller.mig_node import POOL, names, slices, taint_keys
from tests.gpus import ApiError, Device, NodeState, Offers

NOBODY: frozenset[str] = frozenset()


class Claims:
    """The claims of a cluster, and how often they were read."""

    def __init__(self, *answers: frozenset[str] | ApiError) -> None:
        self._answers = list(answers)
        self.looks = 0

    def allocated(self) -> frozenset[str]:
        self.looks += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


class Pool:
    """What is stored of the pool, and what wants to change it; each step is written as it is."""

    def __init__(
        self,
        *answers: frozenset[str] | ApiError,
        stored: Offers,
        settle_seconds: float = 0.0,
        backoff: Backoff | None = None,
    ) -> None:
        self.claims = Claims(*(answers or [NOBODY]))
        # By default, waits between looks that no test reaches the end of.
        self.changeover = Changeover(
            POOL, self.claims.allocated, settle_seconds, backoff or Backoff(2.0, 60.0)
        )
        self.remembered = Published()
        self.stored = slices(stored)

    def step(self, wanted: Offers, held: frozenset[str] = NOBODY) -> float | None:
        """One sync; returns after how many seconds it wants another one."""
        gpus = mig_node.inventory().gpus
        devices = with_blocked(wanted.devices, NodeState(tuple(sorted(held))), gpus)
        seen = Seen(replace(wanted, devices=devices), held, self.stored, gpus)
        self.remembered = self.changeover.step(self.remembered, seen)
        self.stored = slices(self.remembered.offers)
        return self.remembered.again_in_seconds(time.monotonic(), self.changeover.settle_seconds)

    @property
    def devices(self) -> tuple[Device, ...]:
        return published(self.stored, POOL)[0]

    def of(self, pci: object) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.pci == pci)

    def becomes(self, wanted: Offers) -> bool:
        """Whether that is stored and nothing else, without a taint."""
        return names(self.devices) == names(wanted.devices) and taint_keys(self.devices) <= {()}

    def free(self) -> tuple[Device, ...]:
        """The devices that a new claim may get."""
        return tuple(device for device in self.devices if not device.taints)
