"""No fault of any NVML call makes the node offer another form, drop a device, or mix up NVLink islands.

The calls are those that a look really makes, so that a new one is among them by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from controller.publish.changeover import Published, Seen
from driver.hardware.call_effects import DECIDING
from driver.hardware.inventory import NODE_WORKER
from driver.nvml.api import GPU_CALLS
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, MemoryStore
from tests.clusters import Backoff, Changeover, IncidentStore, Metrics, Object, Observer
from tests.controller.heard_events import HeardEvents
from tests.controller.mig_node import BALANCED, DYNAMIC, POOL, SLICED, WHOLE, cut, names, slices
from tests.controller.timeless_guard import TimelessGuard
from tests.examples import LONG
from tests.gpus import (
    NODE_CALLS,
    Code,
    Device,
    Discovery,
    FakeMachine,
    GpuPolicy,
    NodeConfig,
    NodeState,
    NvmlError,
    Offers,
    Rule,
    SharedOffer,
    build_sysfs,
    load_machine,
    with_verdicts,
)

GPUS = 3
FAULTS: dict[str, Code | None] = {
    "fails once": Code.UNKNOWN,
    "fails for a minute": Code.UNKNOWN,
    "hangs": None,
    **{
        code.name: code
        for code in (
            Code.NOT_FOUND, Code.NO_PERMISSION, Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT,
            Code.RESET_REQUIRED, Code.UNKNOWN,
        )
    },
}  # fmt: skip
METRICS = Metrics()
ILL = {"fails for a minute", "hangs", "RESET_REQUIRED", "UNKNOWN"}
"""The faults that no healthy GPU has."""

HARMLESS = {"cuda_driver_version"}
"""What no GPU is the worse for."""

LOOKS = {"fails for a minute": 4}
"""A minute has four looks."""

BY_MEMORY = SharedOffer("MPS", None, 8 * 2**30)
BY_RULE = 'gpu.productName.contains("H100") && gpu.architecture == "Hopper" && gpu.memoryBytes > 0'
FORMS: dict[str, tuple[Rule, ...]] = {
    "static": (),
    "layout": (Rule("gpu.index == 0", BALANCED), Rule(None, WHOLE)),
    "dynamic": (Rule("gpu.index == 0", DYNAMIC), Rule(None, WHOLE)),
    "shared": (
        Rule(BY_RULE, GpuPolicy("whole", shared=(SLICED, BY_MEMORY))),
        Rule(None, GpuPolicy("hidden")),
    ),
    "whole": (),
}
WHENS = FIRST, RESTART, LATER = "at the first look", "after a restart of the controller", "at a later look"
OF_VGPUS = frozenset({"vgpu_types"})
"""Only a vGPU host is asked, and there is none here."""
BROKEN = load_machine("hgx-h100").slots[0].pci


@cache
def spec() -> MachineSpec:
    """The first GPUs of an HGX board."""
    whole = load_machine("hgx-h100")
    return replace(whole, slots=whole.slots[:GPUS])


@cache
def machine_state(form: str) -> MachineState:
    """The machine as it is while the form is offered: GPU 0 is cut where it can be."""
    machine = FakeMachine(spec(), MemoryStore(MachineState.fresh(spec())))
    if form in ("static", "dynamic", "layout"):
        cut(machine, 0, slices=1, start=6)
        cut(machine, 0, slices=3, start=0)
    return machine.state


class Node:
    """A node whose controller looks, publishes and restarts; what is stored outlives it."""

    def __init__(self, form: str, sysfs: Path) -> None:
        self._sysfs = sysfs
        self.machine = FakeMachine(spec(), MemoryStore(machine_state(form)))
        self.rules = NodeConfig(FORMS[form]) if FORMS[form] else None
        self.stored: list[Object] = []
        self.steps: list[tuple[Device, ...]] = []
        self.restart()

    def restart(self) -> None:
        """Begin with a controller that knows nothing."""
        self.guard = TimelessGuard()
        self.steps = self.steps[-1:]
        self._offers: Offers | None = None
        self._changeover, self._remembered = Changeover(POOL, frozenset, 0.0, Backoff(0.0, 0.0)), Published()
        discovery = Discovery(self.machine.nvml(), self._sysfs, self.guard)
        self._incidents = IncidentStore()
        self._observer = Observer(
            *(discovery, lambda: self.rules, METRICS, HeardEvents(), self._offered),
            on_check=self._incidents.gpus_checked,
        )
        self._observer.plugin_reports(NodeState())

    def look(self) -> None:
        """Look once, and publish until nothing is left to do."""
        with suppress(NvmlError):  # of the node as a whole: the observer has told what follows from it
            self._observer.check()
        if self._offers is None or (self._offers.knows_nothing and not self.stored):
            return
        while True:
            seen = Seen(self._offers, frozenset(), self.stored)
            self._remembered = self._changeover.step(self._remembered, seen)
            offers = self._remembered.offers
            step = replace(offers, devices=with_verdicts(offers.devices, self._incidents.verdicts()))
            if self.steps and step.devices == self.steps[-1]:
                return
            self.stored = slices(step)
            self.steps.append(step.devices)

    @property
    def devices(self) -> tuple[Device, ...]:
        """What is published now."""
        return self.steps[-1] if self.steps else ()

    def _offered(self, offers: Offers, _held: frozenset[str], _gpus: object) -> None:
        self._offers = offers

    def spoil(self, call: str, fault: str) -> None:
        """Begin the fault: of GPU 0 where the call is about a GPU."""
        gpu = None if call in NODE_CALLS else 0
        code = FAULTS[fault]
        if code is None:
            lanes = (NODE_WORKER,) if gpu is None else (str(BROKEN), "GPU 0")
            self.guard.hang(call, *lanes)
        else:
            self.machine.fail(call, gpu, code, times=1 if fault == "fails once" else None)

    def heal(self) -> None:
        """End the fault."""
        self.machine.heal()
        self.guard.let_go()


@pytest.fixture(scope="module")
def sysfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    machine = FakeMachine(spec(), MemoryStore(MachineState.fresh(spec())))
    root = build_sysfs(tmp_path_factory.mktemp("sys"), machine)
    for slot in spec().slots:
        (root / "bus/pci/devices" / str(slot.pci) / "numa_node").unlink()  # so that NVML is asked
    return root


@cache
def expected(form: str, sysfs: Path) -> dict[str, Device]:
    """What is published where nothing fails."""
    return {device.name: device for device in _healthy(form, sysfs).devices}


@cache
def calls(form: str, sysfs: Path) -> tuple[str, ...]:
    """Every call that a look at a node of the form makes."""
    return tuple(dict.fromkeys(_healthy(form, sysfs).guard.calls))


@cache
def _healthy(form: str, sysfs: Path) -> Node:
    node = Node(form, sysfs)
    node.look()
    node.look()
    return node


def test_the_calls_of_a_look_are_known_and_those_that_decide_are_among_them(sysfs: Path) -> None:
    made = {call for form in FORMS for call in calls(form, sysfs)}
    assert made <= NODE_CALLS.keys() | GPU_CALLS.keys()
    assert DECIDING.keys() <= made | OF_VGPUS


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_fault_changes_nothing_but_taints(form: str, fault: str, when: str, sysfs: Path) -> None:
    cases = [case for call in calls(form, sysfs) if is_chosen(case := Case(form, fault, when, call))]
    assert [f"{case}: {problem}" for case in cases for problem in case.problems(sysfs)] == []


def is_chosen(case: Case) -> bool:
    """Whether a run looks at the case: the long one at all 10,000, others at a fifth, always the same."""
    return settings().max_examples >= LONG or crc32(str(case).encode()) % 5 == 0


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    form: str
    fault: str
    when: str
    call: str

    def __str__(self) -> str:
        return f"{self.form}: {self.call} {self.fault} {self.when}"

    @property
    def is_answer(self) -> bool:
        """Whether NVML says what a GPU is that is believed: what it lacks, it had never told."""
        return self.fault == Code.NOT_SUPPORTED.name and self.when != LATER

    @property
    def keeps_away(self) -> bool:
        """Whether the GPU is so ill that no new pod may come."""
        return self.fault in ILL and self.call not in HARMLESS

    def problems(self, sysfs: Path) -> Iterable[str]:
        """What is not as it has to be, in words."""
        node = Node(self.form, sysfs)
        if self.when != FIRST:
            node.look()
        if self.when == RESTART:
            node.restart()
        node.spoil(self.call, self.fault)
        before, made = node.steps[-1:], len(node.guard.calls)
        for _ in range(LOOKS.get(self.fault, 1)):
            node.look()
        for earlier, devices in pairwise((*(before or [()]), *node.steps[len(before) :])):
            yield from self._published(sysfs, earlier, {device.name: device for device in devices})
        # A GPU in MIG mode is not asked for the health of its part of the fabric; its neighbours are.
        spared = self.call == "fabric_health" and node.machine.state.gpus[BROKEN].mig.enabled
        if self.keeps_away and self.call in node.guard.calls[made:] and not spared:
            yield from self._open(node)
        node.heal()
        node.look()
        yield from self._afterwards(sysfs, node.devices)

    def _published(self, sysfs: Path, earlier: tuple[Device, ...], there: dict[str, Device]) -> Iterable[str]:
        """What is wrong with a step."""
        healthy = expected(self.form, sysfs)
        has_no_mig = self.is_answer and self.call == "mig_mode"
        if (appeared := there.keys() - healthy.keys()) and not has_no_mig:
            yield f"appeared: {sorted(appeared)}"
        gone = [device for device in earlier if device.name not in there]
        if not has_no_mig and any(self.when == LATER or not _keeps_away(device) for device in gone):
            yield f"gone: {names(tuple(gone))}"
        if self.when == RESTART and not self.is_answer and healthy.keys() != there.keys():
            yield f"missing: {sorted(healthy.keys() - there.keys())}"
        yield from self._regrouped(there, healthy)
        if self.call in GPU_CALLS and any(
            device.taints and device.pci != BROKEN for device in there.values()
        ):
            yield "neighbours are tainted"

    def _regrouped(self, there: dict[str, Device], healthy: dict[str, Device]) -> Iterable[str]:
        """Groups of NVLinks that have other members; their names may change."""
        for attribute in ("nvlinkDomain", "nvlinkMesh"):
            pairs = {
                (healthy[name].attributes.get(attribute), value)
                for name, device in there.items()
                if (value := device.attributes.get(attribute)) is not None and name in healthy
            }
            # After a restart the broken GPU keeps the name of its group, and the others may have another.
            is_split = self.when != RESTART and len({before for before, _ in pairs}) != len(pairs)
            if is_split or len({now for _, now in pairs}) != len(pairs):
                yield f"{attribute} groups others: {pairs}"

    def _open(self, node: Node) -> Iterable[str]:
        """Devices of the broken GPU that new pods may get."""
        of_all = self.call in NODE_CALLS
        if found := [one.name for one in node.devices if of_all or one.pci == BROKEN if not _keeps_away(one)]:
            yield f"takes new pods: {found}"

    def _afterwards(self, sysfs: Path, devices: tuple[Device, ...]) -> Iterable[str]:
        """What differs from a node that never had the fault."""
        there = {device.name: device for device in devices}
        healthy = expected(self.form, sysfs)
        for name in sorted(there.keys() | healthy.keys()):
            if there.get(name) != healthy.get(name):
                yield f"{name} is not as before when it is over: {there.get(name)}"
        if self.when != FIRST and [*there] != [*healthy]:
            yield "the order is another one when it is over"


def _keeps_away(device: Device) -> bool:
    return any(taint.effect == "NoSchedule" for taint in device.taints)
