"""The process may end at any moment: the call is replayed, and nothing is lost, doubled or left over."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.devices.fabric import fabric_node as fabric
from tests.kubeletplugin.devices.kinds.passthrough.scene import QUAD
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, DEVICES, L40S, made
from tests.kubeletplugin.fake_node import (
    STEPS_OF_DESTROYING,
    STEPS_OF_MAKING,
    STEPS_OF_SHARED_MAKING,
    Crash,
    FakeNode,
)
from tests.kubeletplugin.share_node import class_slicing, mps
from tests.plugin import ClaimRef

Steps = tuple[str, ...]
WRITTEN = STEPS_OF_MAKING[-3:]
SERVED = ("begun", "sharing noted", "compute mode", "daemon", *WRITTEN)
LEFT = ("spec removed", "daemon stopped", "compute mode restored", "sharing forgotten", "released")


@dataclass(frozen=True)
class Kind:
    """Claims of a kind, on a machine that has it.

    ``hardware`` is what the node shows of them, and ``made`` what it shows while one is prepared. A prepare
    has the steps ``making``, an unprepare ``unmaking``; each changes the disk more often than ``ends`` says.
    Another claim may have a part ``beside`` it.
    """

    machine: str
    claim: Callable[[FakeNode, str], ClaimRef]
    hardware: Callable[[FakeNode], object]
    made: object
    making: Steps = ()
    unmaking: Steps = ()
    ends: tuple[int, int] = (0, 0)
    beside: bool = False


def _partitions(node: FakeNode) -> object:
    """Where GPU instances lie on the first two GPUs."""
    return [node.starts(gpu) for gpu in (0, 1)]


def _fabric(node: FakeNode) -> object:
    return fabric.connected(node), fabric.records(node)


def _shares(node: FakeNode) -> object:
    modes = [node.compute_mode(gpu) for gpu in (0, 1)]
    return list(node.mps.running), modes, node.interval(), node.starts(), node.recorded()


def _sliced(node: FakeNode, uid: str) -> ClaimRef:
    """A claim for time-slices, on a GPU whose compute mode they have to change."""
    if node.interval() == "Default":
        node.handle().set_compute_mode("prohibited")
    return node.claim_shares("train", node.shared("ts-4"), config=class_slicing("Long"), uid=uid)


def _vgpu(machine: str, function: str) -> Kind:
    return Kind(
        machine,
        lambda node, uid: node.claim_devices("train", DEVICES[machine], uid=uid),
        lambda node: sorted(made(node)),
        [function],
        ("begun", "vgpu", *WRITTEN),
        STEPS_OF_DESTROYING,
    )


GROUP, PART = "gpu-0000-17-00-0", "gpu-0000-1b-00-0-mig-1g-10gb-6"
KINDS = {
    "whole": Kind(
        "a30-quad",
        lambda node, uid: node.claim("train", 0, uid=uid),
        lambda _node: None,
        None,
        WRITTEN,
        ("spec removed", "released"),
        (4, 3),
    ),
    "partitions": Kind(
        "hgx-h100",
        lambda node, uid: node.claim_devices(
            "train", node.partition(0, "1g.10gb", 6), node.partition(1, "3g.40gb", 4), uid=uid
        ),
        _partitions,
        [[6], [4]],
        STEPS_OF_MAKING,
        STEPS_OF_DESTROYING,
        (12, 7),
    ),
    "fabric": Kind(
        fabric.MACHINE,
        lambda node, uid: node.claim("train", *(fabric.position(node, one) for one in (5, 6)), uid=uid),
        _fabric,
        ((5,), ["partition-5"]),
        fabric.STEPS_OF_ACTIVATING,
        fabric.STEPS_OF_DEACTIVATING,
        (7, 5),
    ),
    "vgpu": _vgpu(L40S, "0000:17:00.7"),
    "mediated vgpu": _vgpu(A100, "0000:3b:00.5"),
    "passthrough": Kind(
        QUAD,
        lambda node, uid: node.claim_devices("train", f"{GROUP}-vfio", uid=uid),
        lambda node: node.machine.node().kernel.functions[node.gpus[0]].driver,
        "vfio-pci",
        ends=(8, 6),
    ),
    "MPS": Kind(
        "a30-quad",
        lambda node, uid: node.claim_shares("train", node.shared("mps-4"), uid=uid),
        _shares,
        ([GROUP], ["exclusive-process", "default"], "Default", [], [GROUP]),
        SERVED,
        LEFT,
        (10, 6),
        beside=True,
    ),
    "MPS of one claim": Kind(
        "a30-quad",
        lambda node, uid: node.claim("train", 0, 1, config=mps(), uid=uid),
        _shares,
        ([GROUP], ["exclusive-process"] * 2, "Default", [], [GROUP]),
        SERVED,
        LEFT,
    ),
    "MPS of a partition": Kind(
        "hgx-h100",
        lambda node, uid: node.claim_shares("train", f"{node.partition(0, '1g.10gb', 6)}-mps-2", uid=uid),
        _shares,
        ([PART], ["default"] * 2, "Default", [6], [PART]),
        (*STEPS_OF_SHARED_MAKING, *WRITTEN),
        ("spec removed", "daemon stopped", "sharing forgotten", *STEPS_OF_DESTROYING[1:]),
        beside=True,
    ),
    "time-slices of a class": Kind(
        "a30-quad",
        _sliced,
        _shares,
        ([], ["default"] * 2, "Long", [], [GROUP]),
        ("begun", "sharing noted", "compute mode", "time-slice", *WRITTEN),
        ("spec removed", "compute mode restored", "time-slice restored", "sharing forgotten", "released"),
        beside=True,
    ),
    "time-slices": Kind(
        "a30-quad",
        lambda node, uid: node.claim_shares("train", node.shared("ts-4"), uid=uid),
        _shares,
        ([], ["default"] * 2, "Default", [], [GROUP]),
        ends=(8, 5),
    ),
}


def opened(folder: Path, kind: Kind, *, on_disk: bool = False) -> FakeNode:
    binds = kind.machine in (L40S, A100, QUAD)
    return FakeNode(folder, kind.machine, on_disk=on_disk, binds=binds)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def node(kind: Kind, tmp_path: Path) -> Iterator[FakeNode]:
    node = opened(tmp_path, kind)
    yield node
    node.stop()


def assert_nothing_is_left(node: FakeNode, kind: Kind, before: object) -> None:
    """Neither on the hardware nor in the plugin's folders, and the devices can be had by the next."""
    assert kind.hardware(node) == before
    assert list(node.cdi.glob("*.json")) == []
    following = kind.claim(node, "")
    node.prepare(following)
    assert kind.hardware(node) == kind.made
    node.unprepare(following)
    if kind.machine in ("hgx-h100", "a30-quad"):
        node.prepare(node.claim("next", 0, 1))


def each(steps: str, *thens: str) -> pytest.MarkDecorator:
    """Every step of a kind, and what comes next; ``beside`` where another claim may have a part."""
    rows = [
        (name, step, then)
        for name, one in KINDS.items()
        for step in getattr(one, steps)
        for then in thens
        if one.beside or then != "beside"
    ]
    return pytest.mark.parametrize(("kind", "step", "then"), rows, indirect=["kind"])


def crashed(node: FakeNode, operation: Callable[[ClaimRef], object], ref: ClaimRef, step: str) -> None:
    node.crash_after = step
    with pytest.raises(Crash):
        operation(ref)


def has_beside(node: FakeNode, kind: Kind) -> None:
    """Another claim has a part as well, and leaves."""
    other = kind.claim(node, "")
    node.prepare(other)
    assert kind.hardware(node) == kind.made
    node.unprepare(other)


@each(
    "making",
    *("prepare", "keeper, prepare", "unprepare", "beside", "reboot, keeper, prepare", "reboot, keeper"),
)
def test_devices_are_there_or_gone_as_a_whole_after_any_step(
    node: FakeNode, kind: Kind, step: str, then: str
) -> None:
    before, ref = kind.hardware(node), kind.claim(node, "")
    if "reboot" not in then:
        before = kind.hardware(node)
    crashed(node, node.prepare, ref, step)
    node.reboot() if "reboot" in then else node.restart()
    if "keeper" in then:
        node.sharing_reconciler.run_once()

    if then == "beside":
        has_beside(node, kind)
    if "prepare" in then.split(", "):
        assert node.prepare(ref)
        node.sharing_reconciler.run_once()
        assert kind.hardware(node) == kind.made
        assert node.spec_path(ref).exists()
    node.unprepare(ref)
    assert_nothing_is_left(node, kind, before)


@each("unmaking", "unprepare", "prepare", "passes", "beside")
def test_devices_go_after_a_crash_at_any_step_of_unprepare(
    node: FakeNode, kind: Kind, step: str, then: str
) -> None:
    ref = kind.claim(node, "")
    before = kind.hardware(node)
    node.prepare(ref)
    crashed(node, node.unprepare, ref, step)
    node.restart()

    if then == "prepare":
        assert node.prepare(ref)
        assert kind.hardware(node) == kind.made
    elif then == "passes":
        node.reconciler.finish_releases()
        node.fabric.run_once()
        node.sharing_reconciler.run_once()
        if node.entry(ref).state == "prepared":
            assert kind.hardware(node) == kind.made, "the journal says that the claim has it"
    elif then == "beside" and node.entry(ref).state != "releasing":
        has_beside(node, kind)
    node.unprepare(ref)
    assert_nothing_is_left(node, kind, before)


@pytest.mark.parametrize("kind", [name for name, one in KINDS.items() if any(one.ends)], indirect=True)
@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_a_real_process_may_end_before_any_change_of_the_disk(
    tmp_path: Path, crashes: Crashes, kind: Kind, operation: str
) -> None:
    """The kernel sees the process end between two system calls, so no cleanup of Python's runs."""

    def made(folder: Path) -> tuple[FakeNode, ClaimRef]:
        node = opened(folder, kind, on_disk=True)
        return node, kind.claim(node, UID)

    before: object = None
    fewest = kind.ends[operation == "unprepare"]
    for node, ref, ended in crashes.ends(tmp_path, operation, kind.machine, made, fewest):
        node.sharing_reconciler.run_once()
        if not ended and operation == "unprepare":
            before = kind.hardware(node)
        assert node.prepare(ref)
        assert kind.hardware(node) == kind.made
        assert node.spec_path(ref).exists()
        assert node.unprepare(ref) is None
        before = before or kind.hardware(node)
        assert_nothing_is_left(node, kind, before)
