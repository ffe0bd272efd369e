"""The store keeps faults until something ends them, and what comes back until it was well for long."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.health.incident_store import (
    FORGET_SECONDS,
    HOLD_SECONDS,
    Damping,
    held_seconds,
    read_incidents,
    write_incidents,
)
from driver.hardware.gpu import Condition
from driver.process.log import configure
from tests.clock import Clock
from tests.clusters import IncidentStore
from tests.gpus import (
    XID_CLASSES,
    Gpu,
    Healed,
    HealthRules,
    Incident,
    Inventory,
    NodeState,
    PciAddress,
    Placement,
    Problem,
    Region,
    XidClass,
)

PCI = PciAddress.parse("0000:8a:00.0")
OTHER = PciAddress.parse("0000:8b:00.0")
FATAL, CONTAINED = Incident(Region(PCI), 95), Incident(Region(OTHER), 94)
WELL = Gpu(PCI, "GPU-1", 0, 0, condition=Condition("none"))
RULES = HealthRules()


class Kept:
    """A store with a clock, of the process after ``earlier`` if there was one."""

    def __init__(self, earlier: Kept | None = None, folder: Path | None = None) -> None:
        self.clock: Clock = Clock(1000.0) if earlier is None else earlier.clock
        self.changes = 0
        self.incidents = IncidentStore(self._changed, now=self.clock)
        if folder is not None:
            self.incidents.keep_in(folder.parent)

    def _changed(self) -> None:
        self.changes += 1

    def look(self, *gpus: Gpu, after: float = 15.0, rules: HealthRules = RULES, seconds: float = 0.0) -> None:
        self.clock.now += after
        self.incidents.gpus_checked(Inventory(gpus), rules, seconds)

    def reset(self, pci: PciAddress = PCI, age_seconds: float = 0.0) -> None:
        """Let the plugin report a reset this long ago."""
        at = round((self.clock.now - age_seconds) * 1000)
        self.incidents.plugin_reports(NodeState(healed=(Healed(pci, at),)))

    @property
    def taints(self) -> list[str]:
        return [f"{one.kind}={one.value}" for one in self.incidents.verdicts()]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_fault_goes_with_the_first_look_that_hears_that_nothing_is_recommended(kept: Kept) -> None:
    assert kept.incidents.report(FATAL)
    assert kept.taints == ["xid=95", "needs-reset=xid-95"]
    kept.look(WELL)
    assert kept.taints == []
    assert kept.changes == 2


@pytest.mark.parametrize("action", ["reset", "drain-and-reset", None])
def test_it_stays_while_nvml_recommends_something_or_cannot_be_asked(kept: Kept, action: str | None) -> None:
    kept.incidents.report(FATAL)
    kept.look(replace(WELL, condition=Condition(action)))  # type: ignore[arg-type]
    kept.look()
    assert kept.taints == ["xid=95", "needs-reset=xid-95"]


def test_a_look_that_began_too_soon_after_the_last_event_ends_nothing(kept: Kept) -> None:
    kept.incidents.report(FATAL)
    kept.look(WELL, after=4.0)
    kept.incidents.report(FATAL)
    kept.look(WELL, after=4.0)
    kept.look(WELL, after=10.0, seconds=12.0)
    assert kept.taints
    kept.look(WELL)
    assert not kept.taints


def test_a_fault_that_comes_back_has_to_be_over_for_longer(kept: Kept) -> None:
    for _ in range(2):
        kept.incidents.report(FATAL)
        kept.look(WELL)
    assert kept.taints, "it was back"
    kept.look(WELL, after=20.0)
    assert kept.taints
    kept.look(WELL, after=11.0)
    assert not kept.taints


def test_what_an_admin_changes_counts_for_faults_of_before(kept: Kept) -> None:
    kept.incidents.report(FATAL)
    sick = replace(WELL, condition=Condition("reset"))
    kept.look(sick, rules=HealthRules({95: "ignore"}))
    assert kept.taints == []
    kept.look(sick, rules=HealthRules(evict=frozenset({"needs-reset"})))
    assert [one.effect for one in kept.incidents.verdicts()] == ["NoSchedule", "NoExecute"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The controller's folder, which it makes itself."""
    return tmp_path / "controller"


@pytest.mark.parametrize("told", [None, *XID_CLASSES])
@pytest.mark.parametrize("xid", [None, 31, 48, 79, 94, 95, 9999])
@pytest.mark.parametrize("span", [None, Placement(0, 4)])
def test_the_next_process_judges_a_fault_as_the_one_before(
    folder: Path, told: XidClass | None, xid: int | None, span: Placement | None
) -> None:
    first = Kept(folder=folder)
    first.incidents.report(Incident(Region(PCI, span), xid, told))
    second = Kept(first, folder)
    assert second.incidents.verdicts() == first.incidents.verdicts()
    assert second.changes == first.changes


def test_a_fault_is_kept_before_anybody_hears_of_it(folder: Path) -> None:
    kept = Kept()
    heard: list[dict[Incident, float]] = []
    kept.incidents.on_change = lambda: heard.append(read_incidents(folder))
    kept.incidents.keep_in(folder.parent)
    kept.incidents.report(FATAL)
    kept.look(WELL)
    assert heard == [{FATAL: 1000.0}, {}]
    assert not list(folder.iterdir())


def test_a_process_that_has_to_wait_keeps_nothing_until_it_has_its_turn_and_nothing_after(
    folder: Path,
) -> None:
    first, second = Kept(folder=folder), Kept()
    first.incidents.report(FATAL)
    second.incidents.report(CONTAINED)
    assert read_incidents(folder) == {FATAL: 1000.0}

    first.incidents.leave()
    second.incidents.keep_in(folder.parent)
    first.reset()
    assert read_incidents(folder) == {FATAL: 1000.0, CONTAINED: 1000.0}
    assert second.taints == ["xid=95", "needs-reset=xid-95", "xid=94"]


def test_a_reset_ends_the_faults_of_its_gpu_alone_and_none_of_later(kept: Kept) -> None:
    for pci in (PCI, OTHER):
        kept.incidents.report(Incident(Region(pci), 94))
    for _ in range(2):
        kept.reset(age_seconds=-1.0)
    assert [verdict.scope.pci for verdict in kept.incidents.verdicts()] == [OTHER]
    kept.clock.now += 2.0
    kept.incidents.report(FATAL)
    kept.reset(age_seconds=1.0)
    assert kept.taints == ["xid=95", "needs-reset=xid-95", "xid=94"]


def test_the_clock_is_that_of_the_plugin_for_resets() -> None:
    incidents = IncidentStore()
    for seconds, is_over in ((-60, False), (60, True)):
        incidents.report(FATAL)
        at = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 + seconds * 1000
        incidents.plugin_reports(NodeState(healed=(Healed(PCI, at),)))
        assert (incidents.verdicts() == ()) == is_over


def test_a_reboot_ends_what_was_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_incidents(folder, {FATAL: 1000.0})
    monkeypatch.setattr("controller.health.incident_store.running_boot_id", lambda: "another")
    kept = Kept(folder=folder)
    assert not kept.taints
    kept.incidents.report(CONTAINED)
    assert [*read_incidents(folder)] == [CONTAINED]


WRONG = ({"pci": "gpu"}, {"reported_class": "bad"})
WRITTEN = {"pci": PCI, "span": None, "xid": 95, "reported_class": None, "at": 1.0}


@pytest.mark.parametrize("text", ["", "{", "[]", *(json.dumps({**WRITTEN, **wrong}) for wrong in WRONG)])
def test_a_damaged_file_is_put_aside_and_the_next_fault_is_kept(folder: Path, text: str) -> None:
    write_incidents(folder, {FATAL: 1000.0})
    (file,) = folder.iterdir()
    boot = json.loads(file.read_text())["boot"]
    file.write_text(f'{{"boot": "{boot}", "incidents": [{text}]}}' if text.startswith('{"') else text)
    kept = Kept(folder=folder)
    assert not kept.taints
    assert (folder / "incidents.unreadable").exists()
    kept.incidents.report(FATAL)
    assert read_incidents(folder) == {FATAL: 1000.0}


def test_where_nothing_can_be_written_faults_count_all_the_same_and_it_is_tried_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info")
    folder.write_text("no folder")
    kept = Kept(folder=folder)
    for _ in range(3):
        kept.incidents.report(FATAL)
    assert kept.taints
    assert capsys.readouterr().err.count("would be forgotten by a restart") == 1
    folder.unlink()
    kept.look()
    assert [*read_incidents(folder)] == [FATAL]


def test_what_a_look_finds_goes_at_once_and_lingers_when_it_came_back(kept: Kept) -> None:
    lost = replace(WELL, problems=(Problem("nvmlX", "lost", "lost"),))
    for _ in range(2):
        kept.look(lost)
        assert kept.taints == ["lost=nvmlX"]
        kept.look(WELL)
    assert kept.taints == ["lost=nvmlX"]
    kept.look(WELL, after=31.0)
    assert kept.taints == []
    kept.look(lost)
    kept.look()
    assert kept.taints == [], "the GPU is gone"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("told"), st.sampled_from([48, 79, 94, 95, 31])),
        st.tuples(st.just("well"), st.integers(0, 60)),
        st.tuples(st.just("sick"), st.integers(0, 60)),
        st.tuples(st.just("away"), st.integers(0, 60)),
        st.tuples(st.just("healed"), st.integers(0, 60)),
    ),
    max_size=30,
)


@given(steps)
def test_whatever_happens_a_gpu_that_stays_well_is_given_back(happens: list[tuple[str, int]]) -> None:
    kept = Kept()
    for what, number in happens:
        if what == "told":
            kept.incidents.report(Incident(Region(PCI), number))
            assert bool(kept.taints) or number == 31
        elif what == "healed":
            kept.clock.now += 1
            kept.reset(age_seconds=float(number))
        else:
            condition = Condition({"well": "none", "sick": "reset", "away": None}[what])
            kept.look(replace(WELL, condition=condition), after=float(number))
    kept.look(WELL, after=16.0)
    kept.look(WELL, after=600.0)
    assert kept.taints == []


PLACES = [Region(PCI), Region(PCI, Placement(0, 4)), Region(OTHER)]
some_incident = st.builds(Incident, st.sampled_from(PLACES), st.sampled_from([79, 95, 119]))
moments = st.integers(0, 5).map(float)


@given(
    st.lists(some_incident),
    st.dictionaries(some_incident, moments),
    st.lists(st.tuples(st.sampled_from([PCI, OTHER]), moments)),
    st.permutations(["events", "file", "resets", "events", "file", "resets"]),
)
def test_events_the_file_and_resets_are_told_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[Incident],
    stored: dict[Incident, float],
    resets: list[tuple[PciAddress, float]],
    order: list[str],
) -> None:
    def taints(order: list[str]) -> list[str]:
        folder, kept = tmp_path_factory.mktemp("controller"), Kept()
        write_incidents(folder, {incident: kept.clock.now - age for incident, age in stored.items()})
        for what in order:
            if what == "file":
                kept.incidents.keep_in(folder.parent)
            for incident in events if what == "events" else ():
                kept.incidents.report(incident)
            for pci, age_seconds in resets if what == "resets" else ():
                kept.reset(pci, age_seconds)
        return kept.taints

    assert taints(order) == taints(["file", "events", "resets"])


def test_a_fault_that_lasts_is_no_return() -> None:
    damping = Damping()
    for now in range(100):
        damping.note_bad("gpu", float(now))
    assert damping.note_well("gpu", 101.0)


def test_what_was_well_for_an_hour_begins_anew() -> None:
    damping = Damping()
    for now in (0.0, 2.0, 4.0, 6.0):
        damping.note_bad("gpu", now)
        damping.note_well("gpu", now + 1)
    later = 8.0 + FORGET_SECONDS
    damping.note_bad("gpu", later)
    assert damping.note_well("gpu", later + 1)
    assert damping.note_well("another", later)
    damping.forget_old(later + 2 + FORGET_SECONDS)
    assert len(damping) == 0


@given(st.integers(0, 10_000))
def test_it_takes_longer_with_each_return_and_never_for_ever(returns: int) -> None:
    assert held_seconds(returns) <= held_seconds(returns + 1) <= HOLD_SECONDS[1]
