"""Claims of each kind are tried on one idle GPU, and nothing is tried where that may do harm."""

from pathlib import Path

import pytest

from gpuctl.verify.change.gpu_state import record_path
from gpuctl.verify.change.kinds import Expected
from gpuctl.verify.change.run import verify_changes
from gpuctl.verify.change.undo import UndoRecord
from tests.gpuctl.verify.subjects import machine_in, subject_of

GIB = 1 << 30
SHARE = Expected(share_bytes=10 * GIB)
BY_MPS = Expected(share_bytes=10 * GIB, mps=True)


def test_nothing_is_changed_before_an_earlier_verification_is_undone(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "t4")
    subject = subject_of(tmp_path, machine)
    UndoRecord(subject.places, [])

    (refused,) = verify_changes(subject, lambda _step: None)

    assert refused.status == "fail"
    assert str(record_path(subject.places)) in refused.message
    assert "gpuctl verify --restore" in (refused.way_out or "")


@pytest.mark.parametrize(
    ("expected", "total", "got", "mps", "wrong"),
    [
        (Expected(80 * GIB, 80 * GIB), 79 * GIB, 78 * GIB, None, ""),
        (Expected(80 * GIB), 20 * GIB, GIB, None, "CUDA sees 20480 MiB of memory, not about 81920 MiB"),
        (SHARE, 80 * GIB, 9 * GIB, None, ""),
        (SHARE, 80 * GIB, 12 * GIB, None, "a process got 12288 MiB of memory, more than its 10240 MiB"),
        (SHARE, 80 * GIB, 5 * GIB, None, "a process got only 5120 MiB of memory of its 10240 MiB"),
        (BY_MPS, 80 * GIB, 9 * GIB, True, ""),
        (BY_MPS, 80 * GIB, 9 * GIB, None, ""),
        (BY_MPS, 80 * GIB, 9 * GIB, False, "CUDA did not reach the MPS daemon, and runs without it"),
    ],
)
def test_memory_is_compared_with_what_a_claim_has(
    expected: Expected, total: int, got: int, mps: bool | None, wrong: str
) -> None:
    assert expected.wrong(total, got, under_mps=mps) == ((wrong,) if wrong else ())
