"""Says in the log, in good time, that the serving certificate expires: else nobody would notice.

The API server passes over a webhook that it does not believe (``failurePolicy: Ignore``), without a word to
whoever creates an object.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from controller.webhook.certificate import ServingCertificate
from driver.process.log import get_logger

LOOK_SECONDS = 3600.0
"""How often ``look`` is worth calling."""

_DAY_SECONDS = 86400.0
_WARNING_SECONDS = 30 * _DAY_SECONDS
_WAY_OUT = "replace the Secret gpu-dra-webhook-tls, and caBundle where the certificate signs itself"

_log = get_logger(__name__)


class ExpiryWatch:
    """Looks at the certificate when it is told to, and says what has to be said once a day."""

    def __init__(self, certificate: ServingCertificate, clock: Callable[[], float] = time.time) -> None:
        self._certificate = certificate
        self._clock = clock
        self._said: tuple[Literal["warning", "error"], float] | None = None

    def remaining_seconds(self) -> float:
        """How long the certificate in the files is still good, negative when it has expired."""
        return self._certificate.expires_at() - self._clock()

    def look(self) -> None:
        """Log a warning within 30 days of the expiry, an error after it; each again after a day."""
        remaining = self.remaining_seconds()
        if remaining >= _WARNING_SECONDS:
            self._said = None
            return
        level: Literal["warning", "error"] = "error" if remaining <= 0 else "warning"
        now = self._clock()
        if self._said is not None and self._said[0] == level and now - self._said[1] < _DAY_SECONDS:
            return
        self._said = (level, now)
        expires = datetime.fromtimestamp(now + remaining, UTC).isoformat(timespec="seconds")
        if level == "error":
            _log.error(
                "certificate has expired: objects are stored unseen", expired=expires, way_out=_WAY_OUT
            )
        else:
            days = int(remaining // _DAY_SECONDS)
            _log.warning("certificate expires soon", expires=expires, days=days, way_out=_WAY_OUT)
