"""Claims of each kind are tried on one idle GPU, and nothing is tried where that may do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.doctor.check import Result
from gpuctl.verify.change.kinds import Expected
from gpuctl.verify.change.run import verify_changes
from gpuctl.verify.change.undo import UndoRecord, record_path
from tests import fork_server
from tests.gpuctl.verify.subjects import machine_in, subject_of

GIB = 1 << 30


def verified(folder: Path, machine: FakeMachine) -> tuple[Result, ...]:
    """What came of the claims on a machine."""
    return verify_changes(subject_of(folder, machine), lambda _step: None, start=fork_server.start)


def test_the_kinds_that_a_gpu_has_are_tried_and_the_others_say_why_not(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "a100-vgpu-guest")
    before = machine.state

    found = verified(tmp_path, machine)

    said = {one.check: (one.status, one.message) for one in found}
    assert said == {
        "whole": ("ok", "a container would get this device alone; a program used it and got 9728 MiB"),
        "mig": ("skipped", "the GPU has no MIG"),
        "time-slicing": (
            "ok",
            "a container would get this device alone; a program used it and got 64 MiB and 64 MiB",
        ),
        "mps": ("skipped", "the driver does not offer this GPU in this form"),
        "memory-limits": ("skipped", "needs NVIDIA driver R615"),
        "passthrough": ("skipped", "no IOMMU guards the GPU"),
        "processes-ended": ("ok", "no process or file of the verification is left"),
        "gpu-restored": ("ok", "GPU 0000:02:01.0 is as it was before the verification"),
    }
    assert machine.state == before


def test_nothing_is_changed_before_an_earlier_verification_is_undone(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "t4")
    subject = subject_of(tmp_path, machine)
    UndoRecord(subject.places, [])

    (refused,) = verify_changes(subject, lambda _step: None)

    assert refused.status == "fail"
    assert str(record_path(subject.places)) in refused.message
    assert "gpuctl verify --restore" in (refused.way_out or "")


def test_gpus_that_somebody_uses_are_left_alone(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "t4")
    machine.set_processes(0, (4711,))

    (refused,) = verified(tmp_path, machine)

    assert (refused.status, refused.message) == ("fail", "no GPU is idle")
    assert "4711" in refused.details[0]


@pytest.mark.parametrize(
    ("expected", "total", "allocated", "wrong"),
    [
        (Expected(80 * GIB, 80 * GIB), 79 * GIB, 78 * GIB, ()),
        (Expected(80 * GIB), 20 * GIB, GIB, ("CUDA sees 20480 MiB of memory, not about 81920 MiB",)),
        (Expected(share_bytes=10 * GIB), 80 * GIB, 9 * GIB, ()),
        (
            Expected(share_bytes=10 * GIB),
            80 * GIB,
            12 * GIB,
            ("a process got 12288 MiB of memory, more than its 10240 MiB",),
        ),
        (
            Expected(share_bytes=10 * GIB),
            80 * GIB,
            5 * GIB,
            ("a process got only 5120 MiB of memory of its 10240 MiB",),
        ),
    ],
    ids=["whole", "of another device", "within its share", "more than its share", "less than its share"],
)
def test_memory_is_compared_with_what_a_claim_has(
    expected: Expected, total: int, allocated: int, wrong: tuple[str, ...]
) -> None:
    assert expected.wrong(total, allocated) == wrong


def test_a_process_that_runs_without_mps_is_not_limited_by_it() -> None:
    expected = Expected(share_bytes=10 * GIB, mps=True)

    assert expected.wrong(80 * GIB, 9 * GIB, under_mps=True) == ()
    assert expected.wrong(80 * GIB, 9 * GIB) == ()
    assert expected.wrong(80 * GIB, 9 * GIB, under_mps=False) == (
        "CUDA did not reach the MPS daemon, and runs without it",
    )
