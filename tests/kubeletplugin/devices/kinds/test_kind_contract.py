"""What every kind of device does for a claim, whatever it makes on the hardware."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.gpus import ClaimBlocked, ClaimRefused, DriverError, PciAddress, gpu_device_name
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, DEVICES, L40S, made, opened
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef

End = Callable[[], object]


@dataclass(frozen=True)
class Kind:
    """One of the kinds on a node of its own.

    ``hardware`` is what the node shows of the device: the same before and after a claim. ``fail`` has the
    next attempt to make it fail. ``use`` has somebody use what a claim has, until ``End`` is called.
    ``foreign`` is why a device is blocked that no claim explains.
    """

    open: Callable[[Path], FakeNode]
    device: Callable[[FakeNode], str]
    hardware: Callable[[FakeNode], object]
    fail: Callable[[FakeNode], object]
    use: Callable[[FakeNode, ClaimRef], End]
    foreign: str


def _use_partition(node: FakeNode, ref: ClaimRef) -> End:
    uuid = node.partition_uuid(ref)
    node.machine.set_processes(uuid, (4242,))
    return lambda: node.machine.set_processes(uuid, ())


def _use_function(node: FakeNode, _ref: ClaimRef, address: Callable[[FakeNode], PciAddress]) -> End:
    """What a virtual machine does, and how it ends."""
    pci = address(node)
    hold = node.machine.open_function(pci)
    if pci in node.gpus:
        node.machine.add_process(pci, 4711)

    def end() -> None:
        if pci in node.gpus:
            node.machine.end_process(pci, 4711)
        hold.release()
        node.machine.settle()

    return end


def _vgpu(machine: str, words: str) -> Kind:
    return Kind(
        lambda folder: opened(folder, machine),
        lambda _node: DEVICES[machine],
        made,
        lambda node: node.machine.spoil_kernel("fail", words, error=errno.EINVAL, times=1),
        partial(_use_function, address=lambda node: PciAddress.parse(next(iter(made(node))))),
        "foreign-vgpu",
    )


KINDS = {
    "whole": Kind(
        lambda folder: FakeNode(folder, "hgx-h100"),
        lambda node: gpu_device_name(node.gpus[0]),
        lambda _node: None,
        lambda node: node.machine.fail("uuid", times=1),
        lambda _node, _ref: lambda: None,
        "",
    ),
    "partition": Kind(
        lambda folder: FakeNode(folder, "hgx-h100"),
        lambda node: node.part(),
        lambda node: (node.instances(), node.mig_enabled()),
        lambda node: node.machine.fail("create_compute_instance", times=1),
        _use_partition,
        "foreign-instance",
    ),
    "passthrough": Kind(
        PassthroughNode,
        lambda node: f"{gpu_device_name(node.gpus[1])}-vfio",
        lambda node: node.drivers() if isinstance(node, PassthroughNode) else None,
        lambda node: node.machine.spoil_kernel("fail", "driver_override", error=errno.EIO),
        partial(_use_function, address=lambda node: node.gpus[1]),
        "vfio-user",
    ),
    "vgpu": _vgpu(L40S, "nvidia/current_vgpu_type"),
    "mediated vgpu": _vgpu(A100, "nvidia-471/create"),
}
MAKING = [name for name in KINDS if name != "whole"]
"""The kinds that make something for a claim."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def node(kind: Kind, tmp_path: Path) -> Iterator[FakeNode]:
    node = kind.open(tmp_path)
    yield node
    node.machine.heal_kernel()
    node.stop()


each_kind = pytest.mark.parametrize("kind", KINDS, indirect=True)
each_that_makes = pytest.mark.parametrize("kind", MAKING, indirect=True)


def claimed(node: FakeNode, kind: Kind, name: str = "train") -> ClaimRef:
    return node.claim_devices(name, kind.device(node))


def assert_nothing_is_left(node: FakeNode, kind: Kind, before: object) -> None:
    assert kind.hardware(node) == before
    assert node.journal.held() == ()
    assert list(node.cdi.glob("*.json")) == []


@each_kind
def test_a_call_that_comes_again_changes_nothing_and_the_end_leaves_nothing(
    node: FakeNode, kind: Kind
) -> None:
    before, ref = kind.hardware(node), claimed(node, kind)
    answer = node.prepare(ref)
    made, spec, steps = kind.hardware(node), node.spec_path(ref).read_bytes(), list(node.steps)
    assert (made != before) is bool(kind.foreign)
    node.api.clear()

    assert node.prepare(ref) == answer
    node.restart()
    assert node.prepare(ref) == answer
    assert (kind.hardware(node), node.spec_path(ref).read_bytes(), node.steps) == (made, spec, steps)
    assert node.unprepare(ref) is None
    assert_nothing_is_left(node, kind, before)


@each_kind
def test_a_prepare_that_fails_leaves_nothing(node: FakeNode, kind: Kind) -> None:
    before, ref = kind.hardware(node), claimed(node, kind)
    kind.fail(node)
    with pytest.raises(DriverError):
        node.prepare(ref)
    assert node.journal.get(ref.uid) is None
    assert_nothing_is_left(node, kind, before)
    node.machine.heal_kernel()
    assert node.prepare(ref)


@each_that_makes
def test_what_is_still_in_use_stays_taken_until_it_is_not(node: FakeNode, kind: Kind) -> None:
    before, ref = kind.hardware(node), claimed(node, kind)
    node.prepare(ref)
    end = kind.use(node, ref)

    left = node.unprepare(ref)

    assert left is not None
    assert left.retryable
    node.restart()
    assert node.unprepare(ref) is not None
    assert node.entry(ref).state == "releasing"
    assert not node.spec_path(ref).exists()
    with pytest.raises(ClaimBlocked, match="held by another claim"):
        node.prepare(claimed(node, kind, "next"))
    assert node.reconciler.finish_releases() == ()
    end()
    assert node.reconciler.finish_releases() == (ref.uid,)
    assert node.unprepare(ref) is None
    assert_nothing_is_left(node, kind, before)
    node.prepare(claimed(node, kind, "next"))


@each_that_makes
def test_what_a_lost_claim_has_stays_when_it_ends(node: FakeNode, kind: Kind) -> None:
    ref = claimed(node, kind)
    node.prepare(ref)
    made = kind.hardware(node)
    node.entry_file(ref).unlink()

    assert node.restart().lost == (ref.uid,)
    assert node.unprepare(ref) is None

    assert kind.hardware(node) == made


@each_that_makes
def test_what_no_claim_explains_is_blocked_and_what_a_claim_has_is_not(node: FakeNode, kind: Kind) -> None:
    ref = claimed(node, kind)
    node.prepare(ref)
    end, seen, (held,) = kind.use(node, ref), node.discovery.snapshot(), node.entry(ref).devices
    of_kind = node.kinds.of(held)

    assert list(of_kind.foreign(seen, [held])) == []
    (blocked,) = of_kind.foreign(seen, [])
    assert (str(blocked.pci), blocked.reason) == (held.pci, kind.foreign)
    end()


@each_kind
def test_a_claim_that_was_deleted_while_the_plugin_was_away_is_let_go(node: FakeNode, kind: Kind) -> None:
    before, ref = kind.hardware(node), claimed(node, kind)
    node.prepare(ref)
    node.stop()
    del node.api[ref.namespace, ref.name]
    node.restart()
    assert node.reconciler.run_once() == (ref.uid,)
    assert_nothing_is_left(node, kind, before)


@each_kind
def test_a_reboot_ends_the_claim_which_can_be_prepared_again(node: FakeNode, kind: Kind) -> None:
    before, ref = kind.hardware(node), claimed(node, kind)
    node.prepare(ref)
    node.reboot()
    assert_nothing_is_left(node, kind, before)
    node.prepare(ref)
    assert node.unprepare(ref) is None
    assert_nothing_is_left(node, kind, before)


@pytest.mark.parametrize("kind", ["passthrough", "vgpu", "mediated vgpu"], indirect=True)
def test_what_is_for_virtual_machines_cannot_be_looked_on_at(node: FakeNode, kind: Kind) -> None:
    with pytest.raises(ClaimRefused, match="admin access"):
        node.prepared_devices("look", kind.device(node), admin=True)
