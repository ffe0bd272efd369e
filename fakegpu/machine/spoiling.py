"""Applies the fault rules of a machine to a call: it takes longer, hangs, fails, or lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event

from fakegpu.machine.faults import CallFault, after_hit
from fakegpu.machine.state import MachineState, StateStore

Hits = Callable[[CallFault], bool]
"""Whether a rule is about a call."""


def spoil(store: StateStore, hits: Hits, failure: Callable[[int], Exception]) -> None:
    """Apply the rules that hit a call, oldest first: wait, hang until the rule is gone, or fail.

    ``failure`` makes the error with a rule's code.
    """
    for fault in store.read().faults:
        if fault.lie or not hits(fault):
            continue
        if fault.times is not None and not _count_hit(store, fault):
            continue
        if fault.code is not None:
            raise failure(fault.code)
        if fault.seconds is not None:
            Event().wait(fault.seconds)
            continue
        # Neither a code nor a time: the call hangs until the rule is removed.
        while any(fault.number == other.number for other in store.read().faults):
            store.wait()


def lies(store: StateStore, hits: Hits) -> bool:
    """Whether a rule makes the call report success and do nothing; a counted rule counts it as a hit."""
    found = [fault for fault in store.read().faults if fault.lie and hits(fault)]
    return any(fault.times is None or _count_hit(store, fault) for fault in found)


def _count_hit(store: StateStore, fault: CallFault) -> bool:
    """Count a hit of a counted rule; False if calls of other threads or processes have used it up."""
    counted = False

    def edit(state: MachineState) -> MachineState:
        nonlocal counted
        counted = any(fault.number == other.number for other in state.faults)
        return replace(state, faults=after_hit(state.faults, fault.number))

    store.change(edit)
    return counted
