"""The webhook's TLS certificate: follows renewed files, and warns in the log before it expires.

The API server passes over a webhook whose certificate it does not trust (``failurePolicy: Ignore``),
silently. So the log warns in good time. Python's ssl tells the expiry of other hosts' certificates only,
so this module walks a certificate (RFC 5280, in DER) to the field ``validity`` and reads nothing else;
OpenSSL, which has loaded the same file, judges the rest.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from driver.errors import ConfigError
from driver.process.log import get_logger

_Stamp = tuple[tuple[int, int, int], ...]

_log = get_logger(__name__)

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FIELDS_BEFORE_VALIDITY = 3
"""Serial number, signature algorithm and issuer."""

LOOK_SECONDS = 3600.0
"""How often ``look`` is worth calling."""

_DAY_SECONDS = 86400.0
_WARNING_SECONDS = 30 * _DAY_SECONDS
_WAY_OUT = "replace the Secret gpu-dra-webhook-tls, and caBundle where the certificate signs itself"


class ServingCertificate:
    """A certificate chain and its key, both PEM, in two files that may be replaced at any time.

    A mounted Secret is replaced through a link, so both files change at once. Where they are written one by
    one, the old pair is served until the new one fits together.
    """

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        """Read both files; raises ConfigError when that does not give a certificate."""
        self._files = (cert_file, key_file)
        self._lock = threading.Lock()
        self._stamp = self._seen()
        self._context, self._expires_at = self._loaded()

    def context(self) -> ssl.SSLContext:
        """What to serve the next connection with; the last pair that was good while the files are not."""
        with self._lock:
            self._follow()
            return self._context

    def expires_at(self) -> float:
        """Until when the API server believes what is served, in seconds since 1970."""
        with self._lock:
            self._follow()
            return self._expires_at

    def _follow(self) -> None:
        try:
            stamp = self._seen()
            if stamp != self._stamp:
                self._stamp = stamp  # also when it is wrong: it is said once, not at every connection
                self._context, self._expires_at = self._loaded()
                _log.info("certificate read anew")
        except ConfigError as error:
            _log.warning("certificate not read anew", error=str(error))

    def _seen(self) -> _Stamp:
        """What tells one state of the files from another."""
        try:
            states = [file.stat() for file in self._files]
        except OSError as error:
            raise self._unusable(error) from error
        return tuple((state.st_mtime_ns, state.st_ino, state.st_size) for state in states)

    def _loaded(self) -> tuple[ssl.SSLContext, float]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        cert_file, key_file = self._files
        try:
            # A key with a passphrase is refused; without one given, openssl would ask the terminal for it.
            context.load_cert_chain(cert_file, key_file, password="")
            return context, expires_at(cert_file.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> ConfigError:
        cert_file, key_file = self._files
        return ConfigError(
            f"no certificate can be read from {cert_file} and {key_file}: {error}",
            "give --cert-file and --key-file a PEM certificate and its key, which has no passphrase",
        )


def expires_at(pem: str) -> float:
    """When the first of these certificates expires, in seconds since 1970: a chain is as good as its weakest.

    Raises ValueError when there is none, or when one is none.
    """
    chain = _CERTIFICATE.findall(pem)
    if not chain:
        raise ValueError("there is no certificate in it")
    return min(_not_after(ssl.PEM_cert_to_DER_cert(one)) for one in chain)


def _not_after(der: bytes) -> float:
    certificate, _ = _value(der, _SEQUENCE)
    fields, _ = _value(certificate, _SEQUENCE)
    if fields[:1] == bytes([_VERSION]):
        _, fields = _value(fields, _VERSION)
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        _, fields = _value(fields, fields[0] if fields else _SEQUENCE)
    validity, _ = _value(fields, _SEQUENCE)
    _, after = _value(validity, validity[0] if validity else _UTC_TIME)
    kind = after[0] if after else _UTC_TIME
    text = _value(after, kind)[0].decode("ascii")
    if kind == _UTC_TIME:  # two digits: 50 to 99 are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    elif kind != _GENERALIZED_TIME:
        raise ValueError("a certificate has no time of expiry")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _value(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the element that ``der`` begins with, which has this tag, and what follows it."""
    if len(der) < 2 or der[0] != tag:
        raise ValueError("a certificate is not in DER")
    length, start = der[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(der[2:start], "big")
    if len(der) < start + length:
        raise ValueError("a certificate is cut off")
    return der[start : start + length], der[start + length :]


class ExpiryWatch:
    """Checks the certificate with each ``look``, and logs what has to be logged once a day."""

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
