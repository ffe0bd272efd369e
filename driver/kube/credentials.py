"""Finds the API server and the credentials, in a kubeconfig or in the pod, and keeps them up to date."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import urllib3

from driver.errors import ConfigError
from driver.kube.access import SERVICE_ACCOUNT, Access, Kubeconfig, access_of_pod
from driver.process.log import get_logger

# How long token and authority are used before their files are read again. The kubelet replaces a service
# account's token at 80 % of its lifetime, so both change with time to spare.
_TOKEN_SECONDS = 30.0

_RENEWAL_SECONDS = 10.0
"""The least time between two complete reloads after the server refused the credentials."""

_log = get_logger(__name__)


class Credentials:
    """Where the API server is, which certificates to accept from it and how to authenticate. Thread-safe.

    Raises ConfigError if the kubeconfig, or the pod's service account, cannot be used.
    """

    def __init__(
        self, kubeconfig: Path | Kubeconfig | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._kubeconfig = Kubeconfig((kubeconfig,)) if isinstance(kubeconfig, Path) else kubeconfig
        self._lock = threading.Lock()
        self._load()

    @property
    def transport(self) -> urllib3.PoolManager:
        """The connections with their TLS settings. A reload, or another authority, replaces them."""
        return self._access.transport

    @property
    def server(self) -> str:
        """The server's URL without a slash at the end."""
        return self._access.server

    def authorization(self) -> str | None:
        """The Authorization header; None if a client certificate or nothing is presented.

        Raises ConfigError if the source of the token went away.
        """
        # Without the lock, since each request comes here. A token that another thread just replaces is still
        # valid.
        if self._clock() < self._fresh_until:
            return self._authorization
        with self._lock:
            if self._clock() >= self._fresh_until:
                self._follow_authority()
                self._read_token()
        return self._authorization

    def renew(self) -> None:
        """After a 401, read the token again. If it is still the same, load everything again."""
        with self._lock:
            refused = self._authorization
            self._read_token()
            unchanged = self._authorization == refused
            # A new client certificate comes only by a reload. Not at each 401, or a client that is
            # refused for good would read its files all the time.
            if unchanged and self._clock() >= self._loaded_at + _RENEWAL_SECONDS:
                self._load()

    def _load(self) -> None:
        self._access = _access(self._kubeconfig)
        self._loaded_at = self._clock()
        self._read_token()

    def _follow_authority(self) -> None:
        """Load everything again if the authority's file has changed."""
        # A cluster may rotate its authority. The server still accepts this client then, but this client would
        # refuse the server's new certificate.
        authority = self._access.authority
        if authority is None or authority.is_current():
            return
        try:
            self._load()
        except ConfigError as error:
            # Go on with the old authority: the file may be half written at the moment.
            _log.warning("cannot read the API server's certificate authority again", error=str(error))
            return
        _log.info("read the API server's certificate authority again", file=str(authority.path))

    def _read_token(self) -> None:
        try:
            self._authorization = self._access.authorization()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot read the token for the API server: {error}", "check the token file"
            ) from error
        self._fresh_until = self._clock() + _TOKEN_SECONDS


def _access(kubeconfig: Kubeconfig | None) -> Access:
    if kubeconfig is None:
        return access_of_pod(SERVICE_ACCOUNT)
    # A pod never needs it (see there).
    from driver.kube.kubeconfig import access_of

    return access_of(kubeconfig)
