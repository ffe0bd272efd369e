"""Finds the shared devices whose MPS control daemon does not run, for the controller to taint: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from driver.devices.node_state import BlockedPlacement
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.mps_daemon import MpsState

_SILENT = "the MPS supervisor of the node does not answer"


def daemons_down(
    entries: Iterable[Entry], states: Sequence[MpsState] | None, era: Era, kinds: HeldKinds
) -> tuple[BlockedPlacement, ...]:
    """What is blocked on GPUs with MPS shares; ``states`` is None while the supervisor is silent."""
    told = None if states is None else {state.name: state for state in states}
    found: dict[str, BlockedPlacement] = {}
    for entry in entries:
        if not kinds.standing(entry, era).is_prepared:
            continue
        for held in entry.devices:
            share = held.share
            why = _why(share.group, told) if share is not None and share.strategy == "MPS" else ""
            if why:
                for region in kinds.of(held).occupies(held):
                    found[held.device] = BlockedPlacement(
                        region.pci, region.span, "mps-daemon", f"{held.device}: {why}"
                    )
    return tuple(found[device] for device in sorted(found))


def _why(group: str, told: Mapping[str, MpsState] | None) -> str:
    """Why the group's daemon does not serve, empty when it does."""
    if told is None:
        return _SILENT
    state = told.get(group)
    if state is None:
        return "its MPS control daemon is not there"
    return "" if state.running else f"its MPS control daemon does not serve: {state.message}"
