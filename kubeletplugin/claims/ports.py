"""What the preparer of claims asks of the world besides the hardware."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from driver.errors import DriverError
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.devices.kinds.kind import Look
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.kubelet.wire.timing import NO_TIMING, Timing


@dataclass(frozen=True, slots=True)
class Ports:
    """Functions, each of which another part of the plugin has.

    ``get_claim(namespace, name)`` is the API object, raising ApiError or ClaimRefused when there is
    none. ``published_uuid(device)`` is the GPU UUID in this node's ResourceSlice, None when unknown.
    ``look()`` begins a look at the GPUs. ``complain(claim, error)`` tells the user once that a call waits.
    ``note(claim, text)`` tells what the hardware does not do for a claim that is prepared all the same.
    ``prepared(entry)`` and ``left_behind(uid)`` hear of a claim that is ready, and of one of which not
    everything could be taken back. ``releasing(uid)`` stands around the work of taking a claim back.
    ``let_go(uid)`` takes a claim back that nobody needs any more; whether it did. ``is_used(entry)`` is
    whether a container has devices of the claim; it raises DriverError.
    ``forget_memory(uid)`` gives back what the containers of a claim are held
    to, once there are none; it raises StorageError. ``step(name)`` is for tests to follow. ``timing`` hears
    how long phases took.
    """

    get_claim: Callable[[str, str], dict[str, Any]]
    published_uuid: Callable[[str], str | None]
    look: Callable[[], Look]
    complain: Callable[[ClaimRef, DriverError], None]
    note: Callable[[ClaimRef, str], None]
    prepared: Callable[[Entry], None]
    left_behind: Callable[[str], None]
    releasing: Callable[[str], AbstractContextManager[None]]
    let_go: Callable[[str], bool]
    is_used: Callable[[Entry], bool]
    forget_memory: Callable[[str], None]
    step: Callable[[str], None]
    timing: Timing = NO_TIMING
