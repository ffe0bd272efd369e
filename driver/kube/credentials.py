"""Finds the API server and the credentials, from a kubeconfig or from the pod, and keeps them fresh.

The ``kubernetes`` package reads the configuration, runs exec plugins and renews their tokens. Two
things it leaves out are done here: a kubeconfig's ``tokenFile`` is read again when it is rotated, and
an exec plugin that fails is an error instead of an anonymous client.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.incluster_config import load_incluster_config
from kubernetes.config.kube_config import load_kube_config

from driver.errors import ConfigError

CONNECTIONS = 32
"""Connections kept alive: sixteen parallel requests, the watches and the events."""

_TOKEN_SECONDS = 30.0
"""How long a token is used before its source is asked again; kubelets rotate with minutes to spare."""

_RENEWAL_SECONDS = 10.0
"""The least time between two complete renewals after the server refused the credentials."""


class Credentials:
    """Where the API server is and how to authenticate there. Thread-safe.

    Raises ConfigError when the kubeconfig, or the pod's service account, cannot be used.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._lock = threading.Lock()
        self._token_file: Path | None = None
        self._load()

    @property
    def transport(self) -> urllib3.PoolManager:
        """The connections with their TLS settings; a renewal replaces them."""
        return self._transport

    @property
    def server(self) -> str:
        """The server's URL without a slash at the end."""
        return self._server

    def authorization(self) -> str | None:
        """The Authorization header, None when a client certificate, or nothing, is presented.

        Raises ConfigError when the source of the token went away.
        """
        if time.monotonic() < self._fresh_until:
            return self._authorization
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._read_token()
        return self._authorization

    def renew(self) -> None:
        """Take a fresh token after a 401; when there is none, load everything again, but not in a row."""
        with self._lock:
            refused = self._authorization
            self._read_token()
            unchanged = self._authorization == refused
            if unchanged and time.monotonic() >= self._loaded_at + _RENEWAL_SECONDS:
                self._load()

    def _load(self) -> None:
        configuration = Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        configuration.keep_alive = True
        if self._kubeconfig is None:
            _load_from_pod(configuration)
        else:
            user = _load_file(self._kubeconfig, configuration)
            token_file = user.get("tokenFile") if "token" not in user else None
            self._token_file = self._kubeconfig.parent / str(token_file) if token_file else None
        self._configuration = configuration
        self._server = str(configuration.host).rstrip("/")
        self._transport = _transport(configuration, self._kubeconfig)
        self._loaded_at = time.monotonic()
        self._read_token()

    def _read_token(self) -> None:
        try:
            if self._token_file is not None:
                token: str | None = f"Bearer {self._token_file.read_text().strip()}"
            else:
                token = self._configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, ValueError, ConfigException) as error:
            raise ConfigError(
                f"the token for the API server cannot be read: {error}", "check the token file"
            ) from error
        self._authorization = token.strip() if token else None
        self._fresh_until = time.monotonic() + _TOKEN_SECONDS


def _transport(configuration: Configuration, kubeconfig: Path | None) -> urllib3.PoolManager:
    """The connection pool that the ``kubernetes`` package sets up: TLS, proxies, keep-alive."""
    try:
        manager: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
    except (OSError, ValueError) as error:
        raise ConfigError(f"the API server of {kubeconfig} cannot be used: {error}") from error
    return manager


def _load_from_pod(configuration: Configuration) -> None:
    """Use the service account of the pod."""
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call] # has no hints
    except (ConfigException, OSError) as error:
        raise ConfigError(
            f"no kubeconfig is given and the pod's service account cannot be used: {error}",
            "outside a cluster pass --kubeconfig FILE",
        ) from error


def _load_file(kubeconfig: Path, configuration: Configuration) -> dict[str, Any]:
    """Use the current context of the file; the answer is its user entry."""
    try:
        content = yaml.safe_load(kubeconfig.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the kubeconfig {kubeconfig} cannot be read: {error.strerror}", "check --kubeconfig"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the kubeconfig {kubeconfig} is not YAML", "check --kubeconfig") from error
    try:
        user = _current_user(content)
        load_kube_config(  # type: ignore[no-untyped-call] # has no hints
            config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"the kubeconfig {kubeconfig} cannot be used: {error}",
            "check its current-context, cluster and user",
        ) from error
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        raise ConfigError(
            f"the exec plugin of the kubeconfig {kubeconfig} gave neither a token nor a certificate",
            "run the command in its user entry by hand",
        )
    return user


def _current_user(content: Any) -> dict[str, Any]:
    """The user entry of the current context, empty without one; raises ValueError for no kubeconfig."""
    if not isinstance(content, dict) or "current-context" not in content:
        raise ValueError("it names no current-context")
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts") or []}
    users = {entry["name"]: entry.get("user") for entry in content.get("users") or []}
    context = contexts.get(content["current-context"])
    if context is None:
        raise ValueError(f"it has no context {content['current-context']!r}")
    user = users.get(context.get("user"))
    return dict(user) if user else {}
