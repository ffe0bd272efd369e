"""A fake machine that an observer looks at, and what it offered, look by look."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.clusters import IncidentStore, Metrics, Observer
from tests.controller.heard_events import HeardEvents
from tests.gpus import Device, Discovery, FakeMachine, Guard, NodeConfig, NodeState, Offers, with_verdicts


class Observed:
    """A machine under ``rules``, whose plugin holds what ``state`` says, or has not told it yet."""

    def __init__(
        self,
        guard: Guard,
        machine: str = "hgx-h100",
        state: NodeState | None = NodeState(),  # noqa: B008 - it cannot be changed
        sysfs: Path = Path("/no-sysfs"),
        **more: Any,
    ) -> None:
        self.machine = FakeMachine.open(machine)
        self.metrics = Metrics()
        self.events = HeardEvents()
        self.rules: NodeConfig | None = None
        self.all: list[Offers] = []
        self.held: list[frozenset[str]] = []
        self.incidents = IncidentStore()
        self.discovery = Discovery(self.machine.nvml(), sysfs, guard)
        self.observer = Observer(
            *(self.discovery, lambda: self.rules, self.metrics, self.events, self._offered),
            **{"on_check": self.incidents.gpus_checked, **more},
        )
        if state is not None:
            self.observer.plugin_reports(state)

    def check(self) -> None:
        """Look once."""
        self.observer.check()

    @property
    def offered(self) -> list[tuple[Device, ...]]:
        """The devices that were offered, each time."""
        return [one.devices for one in self.all]

    def _offered(self, offers: Offers, held: frozenset[str], _gpus: object) -> None:
        # As the publisher does.
        devices = with_verdicts(offers.devices, self.incidents.verdicts())
        self.all.append(replace(offers, devices=devices))
        self.held.append(held)
