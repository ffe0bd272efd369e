"""How to reach the API server with any kubeconfig. Only this module imports the ``kubernetes`` package.

The package reads the configuration, runs exec plugins and renews their tokens. In one thing this module
differs: if an exec plugin fails, that is an error, while the package would go on as an anonymous client.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.incluster_config import load_incluster_config
from kubernetes.config.kube_config import load_kube_config_from_dict

from driver.errors import ConfigError
from driver.kube.access import CONNECTIONS, Access
from driver.kube.bounded import bounded
from driver.kube.endpoint import Authority


def full_access_of_pod() -> Access:
    """The access of the pod's service account; raises ConfigError outside of a pod."""
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):  # the kubelet sets it in every container
        raise ConfigError(
            "there is no kubeconfig, and this is not a pod",
            "name one with --kubeconfig; gpuctl also takes $KUBECONFIG and ~/.kube/config",
        )
    configuration = _configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call] # has no hints
    except (ConfigException, OSError) as error:
        raise ConfigError(
            f"there is no kubeconfig, and the pod's service account cannot be used: {str(error).rstrip('.')}",
            "name a kubeconfig with --kubeconfig",
        ) from error
    return _access(configuration, None, "the pod's service account")


def full_access_of_kubeconfig(kubeconfig: str, content: Any) -> Access:
    """The access of the current context; ``kubeconfig`` names the content in the ConfigError that it raises.

    Paths in the content are absolute.
    """
    configuration = _configuration()
    try:
        user = _current_user(content)
        load_kube_config_from_dict(  # type: ignore[no-untyped-call] # has no hints
            content, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"cannot use the kubeconfig {kubeconfig}: {error}",
            "check its current-context, cluster and user",
        ) from error
    # The package only logs it if an exec plugin fails.
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        raise ConfigError(
            f"the exec plugin of the kubeconfig {kubeconfig} returned neither a token nor a certificate",
            "run the command in its user entry by hand",
        )
    # The package reads the file once. Here it is read for each request, since its owner may replace it.
    token_file = user.get("tokenFile") if "token" not in user else None
    return _access(configuration, Path(token_file) if token_file else None, kubeconfig)


def _configuration() -> Configuration:
    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    # As driver.kube.access sets it up for its own connections.
    configuration.keep_alive = True
    return configuration


def _access(configuration: Configuration, token_file: Path | None, source: str) -> Access:
    file = configuration.ssl_ca_cert
    try:
        # Before the connections read the file, so that a change in between is noticed.
        authority = Authority.read(Path(file)) if file else None
        transport = bounded(RESTClientObject(configuration).pool_manager)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot use the API server of {source}: {error}", "check its server and certificates"
        ) from error
    server = str(configuration.host).rstrip("/")
    return Access(server, transport, _header(configuration, token_file), authority)


def _header(configuration: Configuration, token_file: Path | None) -> Callable[[], str | None]:
    def header() -> str | None:
        if token_file is not None:
            return f"Bearer {token_file.read_text().strip()}"
        try:
            # This also calls the package's hook that runs an exec plugin again when its token has expired.
            token = configuration.get_api_key_with_prefix("BearerToken")
        except ConfigException as error:
            raise ValueError(str(error)) from error
        return token.strip() if token else None

    return header


def _current_user(content: Any) -> dict[str, Any]:
    """The user entry of the current context, empty if it has none; ValueError: it is not a kubeconfig."""
    if not isinstance(content, dict) or "current-context" not in content:
        raise ValueError("it has no current-context")
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts") or []}
    users = {entry["name"]: entry.get("user") for entry in content.get("users") or []}
    context = contexts.get(content["current-context"])
    if context is None:
        raise ValueError(f"it has no context {content['current-context']!r}")
    user = users.get(context.get("user"))
    return dict(user) if user else {}
