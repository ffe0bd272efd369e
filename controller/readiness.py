"""Says why a controller is not ready: it waits for something before it may publish, or has not published."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driver.process.probes import Question


class Readiness:
    """What keeps the controller from publishing anything comes before what is not published yet."""

    def __init__(self, published: Question) -> None:
        """``published`` answers why what there is to publish is not published."""
        self._waits_for = "the API server has not told of the node yet"
        self._published = published

    def wait_for(self, sentence: str) -> None:
        """From now on this has to come first; an empty text for nothing."""
        self._waits_for = sentence

    def why_not(self) -> str:
        """Why not, empty when everything is published or there is nothing to publish."""
        return self._waits_for or self._published()
