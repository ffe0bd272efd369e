"""A clock that stands until a test moves it."""


class Clock:
    """The time in seconds, which is ``now`` whenever it is asked."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
