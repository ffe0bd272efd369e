"""A pod reaches the API server by its service account, others by a kubeconfig; both find the proxy."""

import ssl
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driver.kube.access import Access, Authority, Kubeconfig, access_of_pod
from driver.kube.kubeconfig import access_of
from tests.clusters import Object
from tests.driver.kube.kubeconfigs import written_kubeconfig
from tests.driver.kube.raw_server import RawServer
from tests.gpus import ConfigError

SERVER = "https://10.96.0.1:443/"
PROXIES = [f"{name}_PROXY" for name in ("HTTPS", "HTTP", "ALL", "NO")]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def account(tmp_path: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a pod's service account, in the pod's environment."""
    (tmp_path / "ca.crt").symlink_to(pair[0])
    (tmp_path / "token").write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


def kubeconfig(folder: Path, user: Object, **cluster: Any) -> Kubeconfig:
    return Kubeconfig((written_kubeconfig(folder / "config", SERVER, user, **cluster),))


def proxy_of(access: Access) -> str | None:
    pool = access.transport.connection_from_url(access.server)
    return None if pool.proxy is None else pool.proxy.url


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "other,10.96.0.1"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
    ],
)
def test_the_proxy_is_the_one_that_the_environment_names(
    account: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert proxy_of(access_of_pod(account)) == proxy
    assert proxy_of(access_of(kubeconfig(account, {"token": "t"}))) == proxy


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"token": "t"}, {"certificate-authority": "config"}),  # the kubeconfig itself
        ({"token": "t"}, {"certificate-authority": "missing"}),
        ({"token": "t"}, {"certificate-authority-data": "eA=="}),
        ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, {}),
    ],
)
def test_a_broken_certificate_is_an_error(tmp_path: Path, user: Object, cluster: Object) -> None:
    with pytest.raises(ConfigError, match="cannot use the kubeconfig"):
        access_of(kubeconfig(tmp_path, user, **cluster))


def test_the_pods_service_account_is_used_and_its_token_read_anew(
    account: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]
) -> None:
    with pytest.raises(ConfigError, match=r"cannot use the pod's service account in "):
        access_of_pod(account / "another")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")

    access = access_of_pod(account)

    assert access.server == "https://[fd00::1]:443"
    assert access.authority == Authority(account / "ca.crt", pair[0].read_bytes())
    (account / "token").write_text("second\n")
    assert access.authorization() == "Bearer second"


@pytest.fixture
def greeter(pair: tuple[Path, Path]) -> Iterator[str]:
    """The address of a server that answers nobody without this client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pair[0]))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*pair)
    with RawServer(lambda asked: asked.send_json({"kind": "Node"}), context) as server:
        yield server.address


@pytest.mark.parametrize("form", ["files", "data"])
def test_a_client_certificate_is_presented(
    pair: tuple[Path, Path], greeter: str, form: str, tmp_path: Path
) -> None:
    names = ("client-certificate", "client-key")
    user = {name: str(path) for name, path in zip(names, pair, strict=True)}
    if form == "data":
        user = {
            f"{name}-data": b64encode(path.read_bytes()).decode()
            for name, path in zip(names, pair, strict=True)
        }
    cluster = {"server": f"https://{greeter}", "certificate-authority": str(pair[0])}

    access = access_of(kubeconfig(tmp_path, user, **cluster))

    assert access.authorization() is None
    assert access.transport.request("GET", f"{access.server}/").status == 200
