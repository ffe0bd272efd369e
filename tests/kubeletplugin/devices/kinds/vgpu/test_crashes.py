"""A crash after any step of prepare or unprepare, and what the kernel refuses: nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletplugin.devices.vfio.users import FunctionInDoubt, FunctionNotMoved
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, DEVICES, L40S, made
from tests.kubeletplugin.fake_node import Crash, FakeNode

MAKING = ("begun", "vgpu", "committed", "metadata written", "spec written")
UNMAKING = ("spec removed", "releasing", "destroyed", "released")
WORDS = {L40S: "nvidia/current_vgpu_type", A100: "nvidia-471/create"}

Open = Callable[[str], FakeNode]

each_framework = pytest.mark.parametrize("machine", [L40S, A100])


@each_framework
def test_a_prepare_that_crashed_is_finished_or_taken_back(open_node: Open, machine: str) -> None:
    node = open_node(machine)
    for number, step in enumerate(MAKING):
        ref = node.claim_devices(f"vm-{number}", DEVICES[machine])
        for goes_on in (True, False):
            node.crash_after = step
            with pytest.raises(Crash):
                node.prepare(ref)
            node.restart()
            if goes_on:
                node.prepare(ref)
                assert len(made(node)) == 1, step
            assert node.unprepare(ref) is None
            assert made(node) == {}, step


@each_framework
def test_an_unprepare_that_crashed_is_finished(open_node: Open, machine: str) -> None:
    node = open_node(machine)
    for number, step in enumerate(UNMAKING):
        ref = node.claim_devices(f"vm-{number}", DEVICES[machine])
        node.prepare(ref)
        node.crash_after = step
        with pytest.raises(Crash):
            node.unprepare(ref)
        node.restart()

        assert node.unprepare(ref) is None
        assert made(node) == {}, step
        assert not node.spec_path(ref).exists()


@each_framework
@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_crash_right_after_the_kernels_work_leaves_the_vgpu_to_the_claim(
    open_node: Open, machine: str, is_wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_node(machine)
    ref = node.claim_devices("vm", DEVICES[machine])
    write = node.kernel.write

    def dying(path: Path, text: str, deadline_seconds: float) -> None:
        write(path, text, deadline_seconds)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(node.kernel, "write", dying)
        with pytest.raises(Crash):
            node.prepare(ref)
    there = made(node)
    assert len(there) == 1
    node.restart()

    if is_wanted:
        node.prepare(ref)
        assert made(node) == there
    else:
        assert node.unprepare(ref) is None
        assert made(node) == {}


@each_framework
def test_a_write_that_does_nothing_is_seen(open_node: Open, machine: str) -> None:
    node = open_node(machine)
    node.machine.spoil_kernel("ignore", WORDS[machine], times=1)

    with pytest.raises(FunctionNotMoved, match="does not show it"):
        node.prepare(node.claim_devices("vm", DEVICES[machine]))


def test_a_kernel_that_does_not_answer_leaves_the_vgpu_in_doubt_and_to_the_claim(
    open_node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.devices.kinds.vgpu.held._WRITE_SECONDS", 0.05)
    node = open_node(L40S)
    ref = node.claim_devices("vm", DEVICES[L40S])
    node.machine.spoil_kernel("hang", WORDS[L40S])

    with pytest.raises(FunctionInDoubt):
        node.prepare(ref)
    entry = node.journal.get(ref.uid)
    assert entry is not None
    assert entry.state == "releasing"

    node.machine.heal_kernel()
    node.machine.settle()
    assert node.reconciler.finish_releases() == (ref.uid,)
    assert made(node) == {}
