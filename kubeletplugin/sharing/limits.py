"""Adds up the limits of several shares that one client has."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletplugin.claims.journal.entry import ShareRecord


def limits_together(shares: Sequence[ShareRecord]) -> tuple[int, int]:
    """Percent of the threads and MiB of memory, 0 for no limit, of a client that has all these shares."""
    percentage = min(100, sum(share.active_thread_percentage for share in shares))
    pinned = [share.pinned_memory_mib for share in shares]
    return percentage, 0 if 0 in pinned else sum(pinned)
