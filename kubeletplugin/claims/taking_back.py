"""Takes back what was made for a claim, device by device, whatever was in the way of one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from driver.errors import DriverError
from kubeletplugin.claims.progress import Progress
from kubeletplugin.journal.entry import Entry
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import Journal
from kubeletplugin.kinds.kind import HeldKinds


def take_back(
    entry: Entry, era: Era, kinds: HeldKinds, journal: Journal, step: Callable[[str], None]
) -> None:
    """Take back what the entry says was made for the claim.

    What is gone already is fine: nothing outlives a reboot, or a GPU that was lost, and most do not outlive
    the driver. One device
    that cannot be taken back does not keep the others: the first error is raised at the end, and the journal
    then has the entry as ``releasing``.
    """
    progress = Progress(journal, entry, step, is_written=True)
    failure: DriverError | None = None
    for index in reversed(range(len(entry.devices))):
        held = progress.entry.devices[index]
        kind = kinds.of(held)
        if not kinds.is_live(entry, held, era) or not kind.is_made(held):
            continue
        try:
            progress.is_now(index, kind.unmake(progress.entry, index, progress.noting(index, "releasing")))
        except DriverError as error:
            failure = failure or error
            progress.write("releasing", "releasing")
    if failure is not None:
        raise failure


def without_made(entry: Entry, kinds: HeldKinds) -> Entry:
    """The entry when nothing that was made for it is there."""
    devices = tuple(replace(held, record=kinds.of(held).unmade(held)) for held in entry.devices)
    return replace(entry, devices=devices)
