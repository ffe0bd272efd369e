"""What a group needs follows from its members alone, and what a GPU says is believed only when it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.entry import HeldDevice, ShareRecord
from kubeletplugin.sharing.gpus import Member, NotReady, Sharing, daemon_of
from kubeletplugin.sharing.records import SharingRecords
from kubeletplugin.sharing.shares import limits_together
from tests.kubeletplugin.fake_node import FakeNode

T = TypeVar("T")
GROUP = "gpu-0000-01-00-0"
HELD = HeldDevice("r", "p", f"{GROUP}-mps-8", "0000:01:00.0", "GPU-1", "cdi", "s", kind="whole")


def member(uid: str, request: str, percentage: int, mib: int) -> Member:
    share = ShareRecord(GROUP, "MPS", 1, 0, "", percentage, mib, multi_user=True)
    return uid, replace(HELD, request=request, share=share)


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
    assert (daemon.name, daemon.devices, daemon.multi_user) == (GROUP, ("GPU-1",), True)
    assert daemon.active_thread_percentage == max(percentage for percentage, _ in limits)
    unlimited = any(mib == 0 for _, mib in limits)
    assert daemon.pinned_memory_mib == (0 if unlimited else max(mib for _, mib in limits),)


@given(members)
def test_the_order_of_members_makes_no_other_daemon(present: list[Member]) -> None:
    assert daemon_of(GROUP, present) == daemon_of(GROUP, present[::-1])


def test_shares_of_one_client_add_up_to_all_threads_at_most() -> None:
    one, two = ShareRecord(GROUP, "MPS", 1, 0, "", 60, 100), ShareRecord(GROUP, "MPS", 1, 0, "", 60, 0)
    assert limits_together([one]) == (60, 100)
    assert limits_together([one, one]) == (100, 200)
    assert limits_together([one, two]) == (100, 0), "one that has no limit lets all of them be"


def nobody(*_: str | tuple[str, ...]) -> None:
    """Nobody hears of it."""


class _Deaf:
    """A GPU that says that it did what it did not."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def set_compute_mode(self, mode: str) -> None:
        """Say that it is done."""


class _DeafDiscovery(Discovery):
    def on_gpu(self, pci: PciAddress, job: Callable[[Any, Any], T]) -> T:
        return super().on_gpu(pci, lambda device, watch: job(_Deaf(device), watch))


def test_a_compute_mode_is_read_back(node: FakeNode, tmp_path: Path) -> None:
    records = SharingRecords(tmp_path / "sharing", lambda: "")
    guard = Guard(5.0)
    deaf = _DeafDiscovery(node.machine.nvml(), node.sysfs, guard)
    sharing = Sharing(deaf, node.time_slices, node.mps, records, node.watch, nobody)
    share = ShareRecord(node.whole(), "MPS", 1)
    held = replace(HELD, pci=str(node.gpus[0]), uuid=node.uuid(), share=share)
    with pytest.raises(NotReady, match="was set to compute mode exclusive-process but is in default"):
        sharing.settle(node.whole(), (("u", held),))
    guard.close()
    assert (node.mps.ensured, node.compute_mode()) == (0, "default"), "its clients would not be kept apart"
    assert [record.group for record in records.all()] == [node.whole()]
