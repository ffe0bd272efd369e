"""MIG mode follows what a GPU is used for, where it can; what stands in the way is named and left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest

from driver.errors import ClaimBlocked
from driver.process.log import configure
from tests.kubeletplugin.partition_scene import Scene


def test_a_gpu_without_mig_or_with_the_mode_off_is_ready_for_a_whole_claim(
    open_scene: Callable[..., Scene],
) -> None:
    for machine in ("l40s-octo", "hgx-h100", "dgx-a100"):
        scene = open_scene(machine)
        scene.partitions.turn_off_for_whole(scene.pci())
        assert scene.mode() == (False, False)


def test_a_cut_gpu_is_not_handed_out_whole_and_its_instances_are_named(scene: Scene) -> None:
    made = scene.make(scene.located("1g-10gb", 6))

    with pytest.raises(ClaimBlocked, match=rf"it is divided into GPU instance {made.gpu_instance_id} \("):
        scene.partitions.turn_off_for_whole(scene.pci())

    assert scene.partitions.exists(scene.pci(), made)
    assert scene.mode() == (True, True)


def test_a_process_that_keeps_the_mode_on_is_named(scene: Scene) -> None:
    scene.turn_on()
    scene.machine.set_processes(0, (5000001, 5000002))  # beyond pid_max: no process of this machine

    with pytest.raises(ClaimBlocked, match=r"turned off: the GPU is used by .*5000001\), .*5000002\): end"):
        scene.partitions.turn_off_for_whole(scene.pci())

    assert scene.mode() == (True, True)


def test_a_mode_that_only_a_reset_turns_off_blocks_the_whole_gpu(open_scene: Callable[..., Scene]) -> None:
    scene = open_scene("a30-quad")
    scene.turn_on()

    with pytest.raises(ClaimBlocked, match="turning it off needs a reset"):
        scene.partitions.turn_off_for_whole(scene.pci())

    assert scene.mode() == (True, True)


@pytest.mark.parametrize("spoilt", ["in use", "an error"])
def test_a_mode_that_cannot_be_put_to_rest_is_logged_and_nobody_fails(scene: Scene, spoilt: str) -> None:
    scene.turn_on()
    lines = StringIO()
    configure("info", lines)
    if spoilt == "in use":
        scene.machine.set_processes(0, (5000001,))
    else:
        scene.machine.fail("set_mig_mode")

    scene.partitions.turn_off_if_empty(scene.pci())

    (line,) = map(json.loads, lines.getvalue().splitlines())
    assert (line["event"], line["gpu"]) == ("MIG mode stays on", str(scene.pci()))
    assert ("in-use" if spoilt == "in use" else "nvmlDeviceSetMigMode") in line["reason"]
    assert scene.mode() == (True, True)


@pytest.mark.parametrize("machine", ["hgx-h100", "dgx-a100"], ids=["it is off", "it needs a reset"])
def test_rest_of_a_gpu_whose_mode_is_off_or_needs_a_reset_does_not_even_try(
    open_scene: Callable[..., Scene], machine: str
) -> None:
    scene = open_scene(machine)
    if machine == "dgx-a100":
        scene.turn_on()
    before = scene.mode()
    scene.machine.fail("set_mig_mode")
    lines = StringIO()
    configure("info", lines)

    scene.partitions.turn_off_if_empty(scene.pci())

    assert (lines.getvalue(), scene.mode()) == ("", before)
