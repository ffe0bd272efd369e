"""What helps a GPU follows from its taints and their values, and every place that says it says the same."""

import pytest

from driver.health.remedies import BY_KEY, leading, remedy_of
from tests.gpus import (
    XIDS,
    Code,
    GpuLost,
    HealthRules,
    Incident,
    PciAddress,
    Region,
    Taint,
    taints,
    verdicts_of,
)

GPU = Region(PciAddress.parse("0000:1b:00.0"))


def test_every_taint_has_a_remedy() -> None:
    assert BY_KEY.keys() == {value for name, value in vars(taints).items() if name.startswith("TAINT_")}
    assert remedy_of(Taint("example.com/other", "", "NoSchedule")) is None


@pytest.mark.parametrize(
    ("found", "action"),
    [
        ([(taints.TAINT_MEMORY, "unrepairable")], "repair"),
        ([(taints.TAINT_MEMORY, "rows-failed"), (taints.TAINT_RESET, "reset")], "repair"),
        ([(taints.TAINT_MEMORY, "rows-pending")], "reset"),
        ([(taints.TAINT_XID, "95"), (taints.TAINT_RESET, "xid-95")], "reset"),
        ([(taints.TAINT_XID, "79"), (taints.TAINT_REBOOT, "xid-79")], "reboot"),
        ([(taints.TAINT_XID, "79")], "reboot"),
        ([(taints.TAINT_XID, "54")], "repair"),
        ([(taints.TAINT_XID, "94")], "reset"),
        ([(taints.TAINT_XID, "9" * 5000)], "reset"),
        ([(taints.TAINT_LOST, ""), (taints.TAINT_MEMORY, "unrepairable")], "reboot"),
        ([(taints.TAINT_FABRIC, "unhealthy")], "other"),
        ([(taints.TAINT_FABRIC, "unhealthy"), (taints.TAINT_UNRESPONSIVE, "")], "reset"),
        ([(taints.TAINT_BLOCKED, "healing")], None),
    ],
)
def test_what_a_reset_cannot_mend_comes_before_a_reset(
    found: list[tuple[str, str]], action: str | None
) -> None:
    remedy = leading(Taint(key, value, "NoSchedule") for key, value in found)

    assert remedy is not None
    assert remedy.action == action


@pytest.mark.parametrize("xid", XIDS)
def test_an_event_says_what_the_taints_of_its_fault_say(xid: int) -> None:
    found = verdicts_of(Incident(GPU, xid), HealthRules())

    remedy = leading(one.taint for one in found)
    assert {one.text.partition(" on GPU ")[0] for one in found} <= {remedy.meaning if remedy else ""}
    assert {one.way_out for one in found} <= {remedy.todo if remedy else ""}


def test_a_lost_gpu_is_not_said_to_need_a_reset() -> None:
    assert GpuLost("nvmlDeviceGetUUID", Code.GPU_IS_LOST).way_out == BY_KEY[taints.TAINT_LOST].todo
