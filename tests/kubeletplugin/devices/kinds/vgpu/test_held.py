"""A claim's vGPU is made at prepare, given to the container, and taken back at unprepare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletplugin.devices.vfio.users import FunctionInDoubt
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, DEVICES, L40S, made
from tests.kubeletplugin.fake_node import Crash, FakeNode

"""Virtual function 3 of the first L40S: they begin at .4 of the board."""


WORDS = {L40S: "nvidia/current_vgpu_type", A100: "nvidia-471/create"}

Open = Callable[[str], FakeNode]


@pytest.mark.parametrize("machine", [L40S, A100])
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


def test_a_kernel_that_does_not_answer_leaves_the_vgpu_in_doubt_and_to_the_claim(
    open_node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.devices.kinds.vgpu.held._WRITE_SECONDS", 0.05)
    node = open_node(L40S)
    ref = node.claim_devices("vm", DEVICES[L40S])
    node.machine.spoil_kernel("hang", WORDS[L40S])

    with pytest.raises(FunctionInDoubt):
        node.prepare(ref)
    assert node.entry(ref).state == "releasing"

    node.machine.heal_kernel()
    node.machine.settle()
    assert node.reconciler.finish_releases() == (ref.uid,)
    assert made(node) == {}
