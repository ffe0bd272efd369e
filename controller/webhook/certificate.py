"""Keeps the TLS certificate of a server current: files that were renewed are read at the next connection."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

from controller.webhook.validity import expires_at
from driver.errors import ConfigError
from driver.process.log import get_logger

_Stamp = tuple[tuple[int, int, int], ...]

_log = get_logger(__name__)


class ServingCertificate:
    """A certificate chain and its key, both PEM, in two files that may be replaced at any time.

    A mounted Secret is replaced through a link, so both files change at once; whoever writes them one by one
    has the old pair served until the new one fits together.
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
