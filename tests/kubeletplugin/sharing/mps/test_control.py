"""The answers of the control daemon are told apart by their shape, and limits compared as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.mps.processes import Answers, is_amount, limit_commands, limits_fault, sort_answers

DAEMON = MpsDaemon("gpu", ("GPU-1", "GPU-2"), active_thread_percentage=25, pinned_memory_mib=(0, 5632))


def test_limits_are_set_by_ordinal_and_only_where_there_are_any() -> None:
    assert limit_commands(DAEMON) == [
        "set_default_active_thread_percentage 25",
        "set_default_device_pinned_mem_limit 1 5632M",
        "get_default_active_thread_percentage",
        "get_default_device_pinned_mem_limit 1",
    ]
    assert limit_commands(DAEMON, server=17) == [
        "set_active_thread_percentage 17 25",
        "set_device_pinned_mem_limit 17 1 5632M",
        "get_active_thread_percentage 17",
        "get_device_pinned_mem_limit 17 1",
    ]


def test_answers_are_told_apart_by_their_shape() -> None:
    answers = sort_answers(("25.0", "25.0", "5G", "512M", "12345", "Unknown command: x"))
    assert answers == Answers(("25.0", "25.0"), ("5G", "512M"), (12345,), ("Unknown command: x",))


@given(st.integers(1, 2**31))
def test_an_amount_is_known_again_as_the_daemon_rounds_it(mib: int) -> None:
    assert is_amount(mib, f"{mib // 1024}G" if mib >= 1024 else f"{mib}M")
    assert is_amount(mib, f"{mib}M")
    assert not is_amount(mib, f"{mib // 1024 + 1}G")
    assert not is_amount(mib, f"{mib + 1}M")
    assert not is_amount(mib, str(mib))


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (("25.0", "5G"), None),
        (("25.0", "25.0", "5G"), None),  # the setter answered as well
        (("25.0", "6G"), "has a pinned memory limit of 6G where 5632M was set"),
        (("100.0", "5G"), "has an active thread percentage of 100.0 where 25 was set"),
        (("25.0",), "did not report its limits, but ['25.0']"),
        ((), "did not report its limits, but []"),
        (("Invalid device 1", "25.0", "0M"), "refused its limits: Invalid device 1"),
    ],
)
def test_what_is_wrong_with_limits_is_said(lines: tuple[str, ...], fault: str | None) -> None:
    assert limits_fault(DAEMON, sort_answers(lines)) == fault
