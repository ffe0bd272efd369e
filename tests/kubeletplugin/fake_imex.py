"""nvidia-imex of a node, as a test says it is."""

from kubeletplugin.devices.host.imex import Imex, ImexNotReady


class FakeImex(Imex):
    """It is up until a test says why it is not."""

    def __init__(self) -> None:
        self.why_not = ""
        self.checks = 0
        self.was_ready: bool | None = None

    def check(self) -> None:
        """As the test says."""
        self.checks += 1
        self.was_ready = not self.why_not
        if self.why_not:
            raise ImexNotReady(self.why_not, "start it")
