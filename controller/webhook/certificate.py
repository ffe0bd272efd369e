"""The webhook's TLS certificate: follows renewed files, and warns in the log before it expires.

The API server silently skips a webhook whose certificate it does not trust (``failurePolicy: Ignore``), so
the log has to warn in good time.
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

# Tags of DER elements (X.690).
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FIELDS_BEFORE_VALIDITY = 3
"""Serial number, signature algorithm and issuer."""

CHECK_SECONDS = 3600.0
"""How often ``ExpiryWatch.check`` should be called."""

_DAY_SECONDS = 86400.0
_WARNING_SECONDS = 30 * _DAY_SECONDS
_WAY_OUT = "replace the Secret gpu-dra-webhook-tls, and caBundle if the certificate is self-signed"


class ServingCertificate:
    """A certificate chain and its key, both PEM, in two files that may be replaced at any time."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        """Read both files; raises ConfigError when that does not give a certificate."""
        self._files = (cert_file, key_file)
        self._lock = threading.Lock()
        self._stamp = self._current_stamp()
        self._context, self._expires_at = self._load()

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection; while the files are wrong, that of the last good pair."""
        with self._lock:
            self._follow()
            return self._context

    def expires_at(self) -> float:
        """When the served certificate expires, in seconds since 1970."""
        with self._lock:
            self._follow()
            return self._expires_at

    def _follow(self) -> None:
        try:
            stamp = self._current_stamp()
            if stamp != self._stamp:
                # Set before the files are loaded, so that wrong ones are logged once and not at every
                # connection.
                self._stamp = stamp
                # The files of a mounted Secret change together, by a link. If others are written one by one,
                # the key does not fit at first, and the old pair is served until it does.
                self._context, self._expires_at = self._load()
                _log.info("certificate reloaded")
        except ConfigError as error:
            _log.warning("cannot reload the certificate, still serving the old one", error=str(error))

    def _current_stamp(self) -> _Stamp:
        """A value that changes when one of the files is replaced or written."""
        try:
            states = [file.stat() for file in self._files]
        except OSError as error:
            raise self._unusable(error) from error
        return tuple((state.st_mtime_ns, state.st_ino, state.st_size) for state in states)

    def _load(self) -> tuple[ssl.SSLContext, float]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        cert_file, key_file = self._files
        try:
            # Without a password argument OpenSSL would ask for a passphrase on the terminal.
            context.load_cert_chain(cert_file, key_file, password="")
            return context, expires_at(cert_file.read_text(encoding="utf-8", errors="replace"))
        # ssl.SSLError is an OSError.
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> ConfigError:
        cert_file, key_file = self._files
        return ConfigError(
            f"cannot read a certificate from {cert_file} and {key_file}: {error}",
            "give --cert-file and --key-file a PEM certificate and its key, without a passphrase",
        )


def expires_at(pem: str) -> float:
    """When the first certificate of a chain expires, in seconds since 1970; raises as ``expiries`` does."""
    return min(expiries(pem))


def expiries(pem: str) -> list[float]:
    """When each of these certificates expires, in seconds since 1970.

    Raises ValueError if there is no certificate, or if one is malformed.
    """
    found = _CERTIFICATE.findall(pem)
    if not found:
        raise ValueError("it contains no certificate")
    return [_not_after(ssl.PEM_cert_to_DER_cert(one)) for one in found]


def _not_after(der: bytes) -> float:
    # The ssl module gives the expiry only of a peer's certificate. So this walks the certificate (RFC 5280)
    # to the field validity and reads nothing else; OpenSSL has checked the rest when it loaded the file.
    certificate, _ = _value(der, _SEQUENCE)
    fields, _ = _value(certificate, _SEQUENCE)
    # The version is optional: without it, it is a version 1 certificate.
    if fields[:1] == bytes([_VERSION]):
        _, fields = _value(fields, _VERSION)
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        _, fields = _value(fields, fields[0] if fields else _SEQUENCE)
    validity, _ = _value(fields, _SEQUENCE)
    _, after = _value(validity, validity[0] if validity else _UTC_TIME)
    kind = after[0] if after else _UTC_TIME
    text = _value(after, kind)[0].decode("ascii")
    # A UTCTime has two digits for the year; from 50 on they are of the last century (RFC 5280, 4.1.2.5.1).
    if kind == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif kind != _GENERALIZED_TIME:
        raise ValueError("a certificate has no expiry time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _value(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first element in ``der``, which must have this tag, and what follows the element."""
    if len(der) < 2 or der[0] != tag:
        raise ValueError("a certificate is not in DER")
    length, start = der[1], 2
    # With the high bit set, the other bits say how many bytes of length follow.
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(der[2:start], "big")
    if len(der) < start + length:
        raise ValueError("a certificate is truncated")
    return der[start : start + length], der[start + length :]


class ExpiryWatch:
    """Logs that the certificate expires soon or has expired, once a day."""

    def __init__(self, certificate: ServingCertificate, clock: Callable[[], float] = time.time) -> None:
        self._certificate = certificate
        self._clock = clock
        self._logged: tuple[Literal["warning", "error"], float] | None = None

    def remaining_seconds(self) -> float:
        """How long the certificate in the files is still valid; negative if it has expired."""
        return self._certificate.expires_at() - self._clock()

    def check(self) -> None:
        """Log a warning in the last 30 days before the expiry, an error after it; each again after a day."""
        remaining = self.remaining_seconds()
        if remaining >= _WARNING_SECONDS:
            self._logged = None
            return
        level: Literal["warning", "error"] = "error" if remaining <= 0 else "warning"
        now = self._clock()
        if self._logged is not None and self._logged[0] == level and now - self._logged[1] < _DAY_SECONDS:
            return
        self._logged = (level, now)
        expires = datetime.fromtimestamp(now + remaining, UTC).isoformat(timespec="seconds")
        if level == "error":
            _log.error(
                "certificate has expired: objects are stored without a review",
                expired=expires,
                way_out=_WAY_OUT,
            )
        else:
            days = int(remaining // _DAY_SECONDS)
            _log.warning("certificate expires soon", expires=expires, days=days, way_out=_WAY_OUT)
