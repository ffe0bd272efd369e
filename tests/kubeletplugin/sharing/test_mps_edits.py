"""What a group needs follows from its members, and a client is given its daemon and its limits, no more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.claims.cdi.spec import CdiMount
from kubeletplugin.sharing.gpus import Member, daemon_of
from kubeletplugin.sharing.shares import MpsFolders, limits_together, mps_edits
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import Edits, HeldDevice, NotReady, ShareRecord

FOLDERS = MpsFolders(Path("/run/mps"))
SHARE = ShareRecord("gpu-0000-01-00-0", "MPS", 1, active_thread_percentage=25, pinned_memory_mib=1024)
HELD = HeldDevice(
    "r", "p", "gpu-0000-01-00-0-mps-4", "0000:01:00.0", "GPU-1", "cdi-1", "s-1", kind="whole", share=SHARE
)
PIPES = "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"
MOUNTS = (
    CdiMount("/run/mps/gpu-0000-01-00-0/clients", "/tmp/nvidia-mps", is_writable=False),
    CdiMount("/run/mps/gpu-0000-01-00-0/shm", "/dev/shm"),
)
PROGRAMS = frozenset({"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"})


def limits(held: HeldDevice, *others: HeldDevice) -> list[str]:
    edits = mps_edits(held, [held, *others], FOLDERS)
    return [line.removeprefix("CUDA_MPS_") for line in edits.variables if line != PIPES]


def test_a_share_is_held_to_its_limits_at_its_daemon() -> None:
    assert mps_edits(HELD, [HELD], FOLDERS) == Edits(
        (),
        (PIPES, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M"),
        MOUNTS,
        without_programs=PROGRAMS,
    )


def test_shares_of_one_device_in_one_request_count_together() -> None:
    again = replace(HELD, cdi_device="cdi-2", share_id="s-2")
    summed = ["ACTIVE_THREAD_PERCENTAGE=50", "PINNED_DEVICE_MEM_LIMIT=0=2048M"]
    assert limits(HELD, again) == limits(again, HELD) == summed


@pytest.mark.parametrize(
    "other", [{"request": "other"}, {"device": "gpu-0000-02-00-0-mps-4"}, {"share": None}]
)
def test_other_shares_do_not_count(other: dict[str, Any]) -> None:
    assert limits(HELD, replace(HELD, **other)) == limits(HELD)


def test_the_clients_of_a_claims_own_devices_have_the_daemons_limits() -> None:
    """On a partition the daemon's own limit does not hold the memory."""
    own = replace(HELD, share=replace(SHARE, shares=0, memory_bytes=0))
    assert limits(own) == ["ACTIVE_THREAD_PERCENTAGE=25", "PINNED_DEVICE_MEM_LIMIT=0=1024M"]
    assert own.share is not None
    before = replace(own, uuid="GPU-0", share=replace(own.share, pinned_memory_mib=512))
    assert limits(own, before)[1] == limits(before, own)[1] == "PINNED_DEVICE_MEM_LIMIT=0=512M,1=1024M"
    free = replace(own, share=replace(own.share, active_thread_percentage=100, pinned_memory_mib=0))
    assert limits(free) == []


@pytest.mark.parametrize("share", [None, replace(SHARE, strategy="TimeSlicing")])
def test_what_has_no_daemon_is_given_nothing(share: ShareRecord | None) -> None:
    held = replace(HELD, share=share)
    assert mps_edits(held, [held], FOLDERS) == Edits()


GROUP = "gpu-0000-01-00-0"
MEMBER = HeldDevice("r", "p", f"{GROUP}-mps-8", "0000:01:00.0", "GPU-1", "cdi", "s", kind="whole")


def member(uid: str, request: str, percentage: int, mib: int) -> Member:
    share = ShareRecord(GROUP, "MPS", 1, 0, "", percentage, mib, multi_user=True)
    return uid, replace(MEMBER, request=request, share=share)


members = st.lists(
    st.builds(
        member, st.sampled_from("abc"), st.sampled_from("rs"), st.integers(1, 100), st.integers(0, 80_000)
    ),
    min_size=1,
    max_size=8,
)


@given(members)
def test_a_daemon_grants_what_the_largest_client_has_and_no_more(present: list[Member]) -> None:
    clients: dict[tuple[str, str], list[ShareRecord]] = {}
    for uid, held in present:
        assert held.share is not None
        clients.setdefault((uid, held.request), []).append(held.share)
    limits = [limits_together(shares) for shares in clients.values()]
    daemon = daemon_of(GROUP, present)
    assert daemon == daemon_of(GROUP, present[::-1])
    assert (daemon.name, daemon.devices, daemon.multi_user) == (GROUP, ("GPU-1",), True)
    assert daemon.active_thread_percentage == max(percentage for percentage, _ in limits)
    unlimited = any(mib == 0 for _, mib in limits)
    assert daemon.pinned_memory_mib == (0 if unlimited else max(mib for _, mib in limits),)


def test_shares_of_one_client_add_up_to_all_threads_at_most() -> None:
    one, two = ShareRecord(GROUP, "MPS", 1, 0, "", 60, 100), ShareRecord(GROUP, "MPS", 1, 0, "", 60, 0)
    assert limits_together([one]) == (60, 100)
    assert limits_together([one, one]) == (100, 200)
    assert limits_together([one, two]) == (100, 0), "one that has no limit lets all of them be"


def test_a_compute_mode_is_read_back(node: FakeNode) -> None:
    node.machine.lie("set_compute_mode")
    with pytest.raises(NotReady, match="was set to compute mode exclusive-process but is in default"):
        node.prepared_shares("a", node.shared("mps-4"))
    assert (node.mps.ensured, node.compute_mode()) == (0, "default"), "its clients would not be kept apart"
