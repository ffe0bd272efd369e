"""Stops calls that waited until what they ask for is not to be done any more: pure.

A call may wait for locks, or for what passes, longer than the kubelet waits for it. By then the claim may
have come to another pod, or have been let go.
"""

from __future__ import annotations

from driver.errors import ClaimBlocked
from kubeletplugin.claims.journal.entry import Entry, standing
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.kubelet.wire.claim_call import Call


class LateCall(ClaimBlocked):
    """A call that came too late to be carried out; the kubelet asks anew for what it needs.

    It passes, since the next call is not late; this one is not waited for any more.
    """


def refuse_late_prepare(entry: Entry | None, call: Call, boot_id: str) -> None:
    """Raise LateCall for a call that began before the claim was unprepared, since its pod is gone, or that
    the kubelet gave up.

    ``entry`` is the claim's now that its locks are held, ``boot_id`` the boot that is running.
    """
    if entry is not None and not entry.holds and is_newer(entry, call, boot_id):
        raise LateCall(
            f"claim {entry.uid} was unprepared while this call was waiting",
            "nothing has to be done: the kubelet asks again if it needs the claim",
        )
    _refuse_given_up(call)


def refuse_late_unprepare(entry: Entry | None, call: Call, boot_id: str) -> None:
    """Raise LateCall for a call that began before the claim was prepared, perhaps for another pod, or that
    the kubelet gave up. Arguments as above.

    An entry that was rebuilt is from before, whenever it was written.
    """
    now = standing(entry, Era(boot_id))
    if entry is not None and now.has_devices and not now.rebuilt and is_newer(entry, call, boot_id):
        raise LateCall(
            f"claim {entry.uid} was prepared while this call to unprepare it was waiting",
            "nothing has to be done: the kubelet asks again if nobody needs the claim",
        )
    _refuse_given_up(call)


def is_newer(entry: Entry, call: Call, boot_id: str) -> bool:
    """Whether the entry was written after the call came in; the clock is that of one boot."""
    return entry.boot_id == boot_id and call.started_ns < entry.changed_ns


def _refuse_given_up(call: Call) -> None:
    if not call.is_active():
        raise LateCall(
            "the kubelet gave this call up before anything was done", "nothing: the kubelet asks again"
        )
