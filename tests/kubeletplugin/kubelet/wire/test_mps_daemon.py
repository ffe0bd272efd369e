"""What a daemon shall be is checked before it becomes paths and arguments, and survives being written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.errors import ClaimRefused
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon, checked_daemon, read_spec, write_spec

DAEMON = MpsDaemon("gpu-0000-8a-00-0", ("GPU-1a", "GPU-2b"), pinned_memory_mib=(0, 512))


@given(
    st.integers(1, 100), st.booleans(), st.lists(st.integers(0, 2**31), max_size=2).map(tuple),
)  # fmt: skip
def test_a_daemon_is_read_as_it_was_written(
    percentage: int, multi_user: bool, pinned: tuple[int, ...]
) -> None:
    daemon = replace(
        DAEMON, active_thread_percentage=percentage, multi_user=multi_user, pinned_memory_mib=pinned
    )
    assert read_spec(write_spec(daemon)) == daemon


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Upper"},
        {"name": "a\n"},
        {"devices": ()},
        {"devices": ("GPU-1", "GPU-1")},
        {"devices": ("0",)},
        {"devices": ("GPU-1,GPU-2",)},
        {"devices": ("GPU-1\nX=1",)},
        {"devices": ("MIG-1", "MIG-2")},
        {"active_thread_percentage": 0},
        {"active_thread_percentage": 101},
        {"pinned_memory_mib": (1, 2, 3)},
        {"pinned_memory_mib": (-1,)},
        {"pinned_memory_mib": (2**40,)},
    ],
)
def test_what_cannot_be_run_is_refused_for_good(change: dict[str, Any]) -> None:
    with pytest.raises(ClaimRefused):
        checked_daemon(replace(DAEMON, **change))


@pytest.mark.parametrize("device", ["GPU-1", "MIG-GPU-8a3c/1/0", "MIG-8a3c"])
def test_gpus_and_mig_devices_of_old_and_new_drivers_can_be_served(device: str) -> None:
    daemon = MpsDaemon("gpu", (device,))
    assert checked_daemon(daemon) == daemon


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"name": 1}', b"\xff", b"null"])
def test_a_file_that_is_no_daemon_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_spec(data)
