"""The process may end at any moment: the call is replayed, and nothing is lost, doubled or left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.devices.fabric import fabric_node as fabric
from tests.kubeletplugin.devices.kinds.passthrough.scene import QUAD
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, DEVICES, L40S, made
from tests.kubeletplugin.fake_node import STEPS_OF_DESTROYING, STEPS_OF_MAKING, Crash, FakeNode

Steps = tuple[str, ...]
WHOLE, VGPU = STEPS_OF_MAKING[-3:], ("begun", "vgpu", *STEPS_OF_MAKING[-3:])


@dataclass(frozen=True)
class Kind:
    """Claims of a kind, on a machine that has it.

    ``hardware`` is what the node shows of them, and ``made`` what it shows while one is prepared. A prepare
    has the steps ``making``, an unprepare ``unmaking``; each changes the disk more often than ``ends`` says.
    """

    machine: str
    claim: Callable[[FakeNode, str], ClaimRef]
    hardware: Callable[[FakeNode], object]
    made: object
    making: Steps = ()
    unmaking: Steps = ()
    ends: tuple[int, int] = (0, 0)


def _partitions(node: FakeNode) -> object:
    """Where GPU instances lie on the first two GPUs."""
    return [node.starts(gpu) for gpu in (0, 1)]


def _fabric(node: FakeNode) -> object:
    return fabric.connected(node), fabric.records(node)


def _shares(node: FakeNode) -> object:
    return list(node.mps.running), node.compute_mode(), node.recorded()


def _vgpu(machine: str, function: str) -> Kind:
    return Kind(
        machine,
        lambda node, uid: node.claim_devices("train", DEVICES[machine], uid=uid),
        lambda node: sorted(made(node)),
        [function],
        VGPU,
        STEPS_OF_DESTROYING,
    )


GROUP = "gpu-0000-17-00-0"
KINDS = {
    "whole": Kind(
        "a30-quad",
        lambda node, uid: node.claim("train", 0, uid=uid),
        lambda _node: None,
        None,
        WHOLE,
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
        ([GROUP], "exclusive-process", [GROUP]),
        ends=(10, 6),
    ),
    "time-slices": Kind(
        "a30-quad",
        lambda node, uid: node.claim_shares("train", node.shared("ts-4"), uid=uid),
        _shares,
        ([], "default", [GROUP]),
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
    if kind.machine == "hgx-h100":
        node.prepare(node.claim("next", 0, 1))


@pytest.mark.parametrize(
    ("kind", "step"), [(name, step) for name, one in KINDS.items() for step in one.making], indirect=["kind"]
)
@pytest.mark.parametrize("then", ["prepare", "unprepare", "reboot and prepare", "reboot and unprepare"])
def test_devices_are_there_or_gone_as_a_whole_after_any_step(
    node: FakeNode, kind: Kind, step: str, then: str
) -> None:
    before, ref = kind.hardware(node), kind.claim(node, "")
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(ref)
    node.reboot() if "reboot" in then else node.restart()

    if not then.endswith("unprepare"):
        assert node.prepare(ref)
        assert kind.hardware(node) == kind.made
        assert node.spec_path(ref).exists()
    node.unprepare(ref)
    assert_nothing_is_left(node, kind, before)


@pytest.mark.parametrize(
    ("kind", "step"),
    [(name, step) for name, one in KINDS.items() for step in one.unmaking],
    indirect=["kind"],
)
@pytest.mark.parametrize("then", ["unprepare", "prepare", "finish releases"])
def test_devices_go_after_a_crash_at_any_step_of_unprepare(
    node: FakeNode, kind: Kind, step: str, then: str
) -> None:
    before, ref = kind.hardware(node), kind.claim(node, "")
    node.prepare(ref)
    node.crash_after = step
    with pytest.raises(Crash):
        node.unprepare(ref)
    node.restart()

    if then == "prepare":
        assert node.prepare(ref)
        assert kind.hardware(node) == kind.made
    if then == "finish releases":
        node.reconciler.finish_releases()
        node.fabric.run_once()
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
