"""Reads kubeconfigs by the ``kubernetes`` package: it merges files, and runs exec plugins.

Only this module imports the package, which takes 20 MiB and half a second. So others import this module when
they need a kubeconfig; a pod never does.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from driver.errors import ConfigError
from driver.kube.access import Access, Authority, Kubeconfig, connections


def access_of(kubeconfig: Kubeconfig) -> Access:
    """The access of the chosen context; raises ConfigError."""
    # With an empty proxy, the package leaves the environment alone, and has only the proxy of the kubeconfig.
    configuration = Configuration(proxy="")
    with _errors(kubeconfig):
        merged = _merged(kubeconfig)
        loader = KubeConfigLoader(merged, active_context=kubeconfig.context, config_base_path=None)  # type: ignore[no-untyped-call] # has no hints
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call] # has no hints
        user, folder = _user(merged, loader.current_context)
        # Before the connections read the file, so that a change in between is noticed.
        authority = Authority.read(Path(configuration.ssl_ca_cert)) if configuration.ssl_ca_cert else None
        server = str(configuration.host).rstrip("/")
        tls = _tls(configuration) if server.startswith("https://") else None
        transport = connections(server, tls, configuration.proxy or "", configuration.tls_server_name)
    # The package only logs it if an exec plugin fails, and would go on as an anonymous client.
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        raise ConfigError(
            f"the exec plugin of the kubeconfig {kubeconfig} returned neither a token nor a certificate",
            "run the command in its user entry by hand",
        )
    # The package reads the file once. Here it is read again and again, since its owner may replace it.
    token_file = folder / user["tokenFile"] if user.get("tokenFile") and "token" not in user else None
    return Access(server, transport, _header(configuration, token_file), authority)


def contexts_of(kubeconfig: Kubeconfig) -> list[str]:
    """The names of all contexts; raises ConfigError."""
    with _errors(kubeconfig):
        return [str(entry.value["name"]) for entry in _merged(kubeconfig)["contexts"]]


def chosen_context(kubeconfig: Kubeconfig) -> tuple[str, str]:
    """The name of the chosen context, and its namespace, empty if it has none; raises ConfigError."""
    with _errors(kubeconfig):
        loader = KubeConfigLoader(_merged(kubeconfig), active_context=kubeconfig.context)  # type: ignore[no-untyped-call] # has no hints
        chosen = loader.current_context
        return str(chosen["name"]), str(chosen["context"].get("namespace") or "")


def _merged(kubeconfig: Kubeconfig) -> Any:
    """The content of all files that exist, as a node of the package; it remembers each entry's file."""
    if not any(file.exists() for file in kubeconfig.files):
        raise ConfigError(f"the kubeconfig {kubeconfig} does not exist", "check --kubeconfig and $KUBECONFIG")
    return KubeConfigMerger(str(kubeconfig)).config  # type: ignore[no-untyped-call] # has no hints


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        # In this order: Python refuses CERT_NONE while host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        # The kubeconfig asked for it, so urllib3 need not warn at each request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _user(merged: Any, context: Any) -> tuple[dict[str, Any], Path]:
    """The user entry of a context, empty if it has none, and the folder of its file."""
    entry = merged["users"].get_with_name(context["context"].get("user"), safe=True)
    value = entry.value.get("user") if entry else None
    return dict(value or {}), Path(entry.path).absolute().parent if entry else Path()


@contextmanager
def _errors(kubeconfig: Kubeconfig) -> Iterator[None]:
    """Translate what the package raises for a file that is no kubeconfig, or has values that are wrong."""
    try:
        yield
    except (
        ConfigException,
        yaml.YAMLError,
        urllib3.exceptions.HTTPError,
        *(OSError, ValueError, TypeError, KeyError, AttributeError),
    ) as error:
        raise ConfigError(
            f"cannot use the kubeconfig {kubeconfig}: {error}",
            "check its current-context, cluster and user",
        ) from error


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
