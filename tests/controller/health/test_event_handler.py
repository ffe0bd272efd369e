"""What follows from each event, and what many of them cost."""

from dataclasses import dataclass, field

import pytest

from controller.health.event_handler import CHECK_AGAIN_SECONDS, PROGRAM_AGAIN_SECONDS, EventHandler
from driver.nvml.health.calls import EventKind
from tests.clock import Clock
from tests.clusters import IncidentStore
from tests.gpus import Gpu, GpuEvent, GpuInstance, GpuMig, Inventory, NvmlTimeout, PciAddress, Placement

PCI = PciAddress.parse("0000:8a:00.0")
INSTANCE = GpuInstance(3, 19, Placement(2, 1))
GPU = Gpu(PCI, "GPU-1", 0, 0, mig=GpuMig(True, True, True, (), (INSTANCE,)))


@dataclass
class Heard:
    """A handler of one GPU, and what it did."""

    fresh: tuple[GpuInstance, ...] | None = ()
    asked: int = 0
    looks: int = 0
    told: list[str] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock(1000.0)
        self.incidents = IncidentStore(now=self.clock)
        self.handler = EventHandler(
            self.incidents,
            self._instances,
            lambda _pci, xid: self.counted.append(xid),
            self.told.append,
            self._look,
            self.clock,
        )
        self.handler.gpus_checked(Inventory((GPU,)))

    def _instances(self, pci: PciAddress) -> tuple[GpuInstance, ...]:
        self.asked += 1
        if self.fresh is None:
            raise NvmlTimeout("nvmlDeviceGetGpuInstances", str(pci), 5.0)
        return self.fresh

    def _look(self) -> None:
        self.looks += 1

    def xid(self, code: int, instance: int | None = None) -> None:
        self.handler.handle(GpuEvent("xid", "GPU-1", code, instance, None if instance is None else 0))

    @property
    def spans(self) -> set[Placement | None]:
        return {verdict.scope.span for verdict in self.incidents.verdicts()}


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [
        ((GpuInstance(3, 19, Placement(6, 1)),), Placement(6, 1)),
        ((), Placement(2, 1)),
        (None, Placement(2, 1)),
    ],
    ids=["as it lies now", "as it lay at the last look", "as it lay while nobody can ask"],
)
def test_a_partition_is_hit_where_it_lies(fresh: tuple[GpuInstance, ...] | None, expected: Placement) -> None:
    heard = Heard(fresh)
    heard.xid(94, instance=3)
    assert heard.spans == {expected}


def test_a_partition_of_which_nobody_knows_the_place_is_all_of_its_gpu() -> None:
    heard = Heard()
    heard.xid(94, instance=5)
    assert heard.spans == {None}


def test_a_burst_asks_for_one_look_and_for_the_places_once_and_tells_once() -> None:
    heard = Heard()
    for _ in range(1000):
        heard.xid(94, instance=3)
        heard.xid(31)
    assert (heard.looks, heard.asked, len(heard.told)) == (1, 1, 1)
    assert len(heard.counted) == 2000


def test_the_look_that_the_last_event_of_a_burst_asks_for_comes_later() -> None:
    heard = Heard()
    heard.xid(95)
    assert (heard.looks, heard.handler.seconds_left()) == (1, None)
    heard.clock.now += 1
    heard.xid(95)
    assert (heard.looks, heard.handler.seconds_left()) == (1, CHECK_AGAIN_SECONDS - 1)
    heard.clock.now += CHECK_AGAIN_SECONDS
    heard.handler.check_if_due()
    assert (heard.looks, heard.handler.seconds_left()) == (2, None)


def test_a_program_that_fails_for_hours_is_told_of_every_hour() -> None:
    heard = Heard()
    for _ in range(120):
        heard.xid(31)
        heard.clock.now += PROGRAM_AGAIN_SECONDS / 60
    assert len(heard.told) == 2
    assert heard.looks == 0


@pytest.mark.parametrize(
    ("kind", "looks"),
    [("single-bit-ecc", 1), ("double-bit-ecc", 1), ("operational", 1), ("clock", 0), ("power-source", 0)],
)
def test_errors_of_memory_have_the_gpu_looked_at_and_clocks_do_not(kind: EventKind, looks: int) -> None:
    heard = Heard()
    heard.handler.handle(GpuEvent(kind, "GPU-1"))
    assert (heard.looks, heard.incidents.verdicts()) == (looks, ())


def test_events_that_were_dropped_have_the_gpus_looked_at() -> None:
    heard = Heard()
    heard.handler.handle(GpuEvent("xid", "GPU-1", 31, dropped=True))
    assert heard.looks == 1


def test_an_event_of_nobody_is_of_the_only_gpu_else_it_has_all_looked_at() -> None:
    heard = Heard()
    heard.handler.handle(GpuEvent("xid", "", 95))
    assert heard.spans == {None}
    heard = Heard()
    other = Gpu(PciAddress.parse("0000:8b:00.0"), "GPU-2", 1, 1)
    heard.handler.gpus_checked(Inventory((GPU, other)))
    heard.handler.handle(GpuEvent("xid", "", 95))
    heard.handler.handle(GpuEvent("xid", "GPU-3", 95))
    assert (heard.incidents.verdicts(), heard.looks) == ((), 1)
