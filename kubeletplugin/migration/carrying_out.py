"""Takes over what NVIDIA's driver prepared, once that is decided, and drops its checkpoint at the end.

Each step may be the last before a crash. The checkpoint goes last, so the next start decides again, and finds
in the journal what was done already.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.process.durable import remove
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.migration.takeover import TakeOver

_log = get_logger("predecessor")


def carry_out(
    decided: TakeOver, checkpoint: Path, store: CdiStore, adopt: Callable[[Entry], bool]
) -> tuple[str, ...]:
    """The UIDs of the claims that ``adopt`` took over; none where another instance has done it before.

    Callers see to it that one instance at a time is here. Raises DriverError; the next start goes on.
    """
    if not checkpoint.exists():
        return ()
    taken = tuple(entry.uid for entry in decided.entries if adopt(entry))
    for uid in decided.ended:
        store.remove_former(uid)
    remove(checkpoint)
    _log.warning(
        "claims of NVIDIA's driver taken over",
        claims=[entry.owner for entry in decided.entries],
        ended_with_an_earlier_boot=len(decided.ended),
    )
    return taken
