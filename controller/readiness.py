"""Says why a controller is not ready: it waits for something before it may publish, or has not published."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driver.process.probes import Question


class Readiness:
    """``waits_for`` is what the controller waits for before it publishes anything, empty for nothing."""

    def __init__(self, published: Question) -> None:
        """``published`` answers why what there is to publish is not published."""
        self.waits_for = "the API server has not told of the node yet"
        self._published = published

    def why_not(self) -> str:
        """Why not, empty when everything is published or there is nothing to publish."""
        return self.waits_for or self._published()
