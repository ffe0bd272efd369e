"""What the rules raise when an object is wrong, or when they cannot judge it."""

from __future__ import annotations

from typing import ClassVar


class RuleError(Exception):
    """An object of the API cannot be used or judged.

    ``what`` names the object and what is wrong with it; ``way_out`` says what to do about it, or is empty.
    ``retryable`` says whether a later try can succeed because another object has changed.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        kind = "retryable" if self.retryable else "permanent"
        sentence = f"{self.what}: {self.way_out}" if self.way_out else self.what
        return f"{sentence} ({kind})"


class AllocationFailed(RuleError):
    """Claims cannot be allocated because an object is wrong or cannot be judged; the scheduler reports it.

    A retry helps once the object has changed: a pool's update has ended, a class was created.
    """


class PoolInvalid(AllocationFailed):
    """The claims do not fit on one node, and a pool there is invalid: other nodes may have room."""
