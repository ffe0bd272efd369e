"""A number over simulated time: how large it is, was at most, and what it adds up to."""

from __future__ import annotations


class Level:
    """A number that changes now and then, such as GPUs in use. Times are seconds and never go back."""

    __slots__ = ("_area", "_since", "most", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        """What it is now."""
        self.most = value
        """The most that it ever was."""
        self._since = 0.0
        self._area = 0.0

    def change(self, by: int, now: float) -> None:
        """From now on it is so much more, or less."""
        self._area += self.value * (now - self._since)
        self._since = now
        self.value += by
        self.most = max(self.most, self.value)

    def hours(self, now: float) -> float:
        """What it adds up to until now: GPUs in use become GPU-hours."""
        return (self._area + self.value * (now - self._since)) / 3600
