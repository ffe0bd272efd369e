"""How long something has to be well before that is believed: the longer, the more often it came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

FORGET_SECONDS = 3600.0
"""What was well for so long begins anew."""

HOLD_SECONDS = (30.0, 600.0)


@dataclass(slots=True)
class _Known:
    returns: int = 0
    bad: bool = True
    changed_at: float = 0.0


class Damping:
    """Remembers how often each thing was found bad again. Times are of one clock that only goes forward.

    After its first return a thing has to be well for the first of ``hold_seconds``, after many for the last.
    """

    def __init__(self, hold_seconds: tuple[float, float] = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._known: dict[Hashable, _Known] = {}

    def is_bad(self, what: Hashable, now_seconds: float) -> None:
        """Note that it is bad now."""
        known = self._known.get(what)
        if known is None or (not known.bad and now_seconds - known.changed_at > FORGET_SECONDS):
            self._known[what] = _Known(changed_at=now_seconds)
        elif not known.bad:
            known.returns += 1
            known.bad, known.changed_at = True, now_seconds

    def is_well(self, what: Hashable, now_seconds: float) -> bool:
        """Note that it is well now; whether that is believed already.

        The first time it is at once. After each return it has to be well for a while, twice as long as the
        time before, up to the most.
        """
        known = self._known.get(what)
        if known is None:
            return True
        if known.bad:
            known.bad, known.changed_at = False, now_seconds
        return now_seconds - known.changed_at >= held_seconds(known.returns, self._hold_seconds)

    def forget_old(self, now_seconds: float) -> None:
        """Drop what was well for so long that it begins anew."""
        for what, known in tuple(self._known.items()):
            if not known.bad and now_seconds - known.changed_at > FORGET_SECONDS:
                del self._known[what]

    def __len__(self) -> int:
        return len(self._known)


def held_seconds(returns: int, hold_seconds: tuple[float, float] = HOLD_SECONDS) -> float:
    """How long something has to be well that came back so often."""
    if returns == 0:
        return 0.0
    first, most = hold_seconds
    return float(min(first * 2 ** min(returns - 1, 30), most))
