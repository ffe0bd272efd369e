"""Plain credentials are used without the kubernetes package, and everything else is left to it."""

from __future__ import annotations

import ssl
import subprocess
import sys
import tempfile
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from driver.errors import ConfigError
from driver.kube.access import access_of_kubeconfig, access_of_pod
from driver.kube.endpoint import Authority
from tests.openssl import make_certificate

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIUckpFXbKFEbmLD3ahQvEq875vFTwwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOdGVzdCBhdXRob3JpdHkwIBcNMjYxMTIxMDQ1NzAzWhgPMjEy
NjEwMjgwNDU3MDNaMBkxFzAVBgNVBAMMDnRlc3QgYXV0aG9yaXR5MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEMgCBy7q86tWz0rBvwA8Szs9hwh5NwAAuxXfvTfHT
PpwrOza5OMbQTfrJzxF+NCbvjAaFQ0xeIDwETMP2lOdKYKNTMFEwHQYDVR0OBBYE
FERlwh6cvfzS2WFIhHFEQoSL1qdwMB8GA1UdIwQYMBaAFERlwh6cvfzS2WFIhHFE
QoSL1qdwMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAIGoC087
DfDkEwvaE03KeHdHJtEfXvX2VHOZckCHCbc1AiAjgxFGrEkdCteDXRgwn5briM94
35P6JZBwQxc4HEXAdA==
-----END CERTIFICATE-----
"""
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


def content(user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443/", **cluster}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }


def test_a_token_and_a_token_file_are_plain(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from file\n")

    direct = access_of_kubeconfig(content({"token": "direct"}))
    file = access_of_kubeconfig(content({"tokenFile": str(tmp_path / "token")}))
    nobody = access_of_kubeconfig(content({}))

    assert direct is not None
    assert file is not None
    assert nobody is not None
    assert direct.server == "https://127.0.0.1:6443"
    assert direct.authorization() == "Bearer direct"
    assert file.authorization() == "Bearer from file"
    assert nobody.authorization() is None
    (tmp_path / "token").write_text("rotated")
    assert file.authorization() == "Bearer rotated"


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"exec": {"command": "x"}}, {}),
        ({"auth-provider": {"name": "oidc"}}, {}),
        ({"client-certificate-data": "eA=="}, {}),
        ({"token": "t", "as": "somebody"}, {}),
        ({"token": "t"}, {"proxy-url": "http://proxy"}),
        ({"token": "t"}, {"tls-server-name": "other"}),
        ({"token": "t"}, {"server": "unix:///x"}),
    ],
)
def test_whatever_is_not_plain_is_left_to_the_package(user: dict[str, Any], cluster: dict[str, Any]) -> None:
    assert access_of_kubeconfig(content(user, **cluster)) is None


@pytest.mark.parametrize(
    "odd", [None, 7, [], {}, {"current-context": "c"}, {"contexts": 3, "current-context": 1}]
)
def test_what_is_no_kubeconfig_is_left_to_the_package(odd: Any) -> None:
    assert access_of_kubeconfig(odd) is None


def test_behind_a_proxy_nothing_is_plain_but_what_no_proxy_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_text(AUTHORITY)
    (tmp_path / "token").write_text("first")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    away = content({"token": "t"}, server="https://10.96.0.1:443")

    assert access_of_kubeconfig(away) is None
    assert access_of_pod(tmp_path) is None
    assert access_of_kubeconfig(content({"token": "t"})) is not None

    monkeypatch.setenv("NO_PROXY", "10.96.0.0/12,.svc")
    assert access_of_kubeconfig(away) is not None
    assert access_of_pod(tmp_path) is not None


def test_a_broken_authority_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")

    with pytest.raises((OSError, ValueError)):
        access_of_kubeconfig(content({"token": "t"}, **{"certificate-authority": str(tmp_path / "ca.crt")}))
    with pytest.raises((OSError, ValueError)):
        access_of_kubeconfig(content({"token": "t"}, **{"certificate-authority-data": "eA=="}))


def test_the_pods_service_account_is_used_and_its_token_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigError, match=r"cannot use the pod's service account in "):
        access_of_pod(tmp_path)
    (tmp_path / "ca.crt").write_text(AUTHORITY)
    (tmp_path / "token").write_text("first")

    access = access_of_pod(tmp_path)

    assert access is not None
    assert access.server == "https://[fd00::1]:443"
    assert access.authority == Authority(tmp_path / "ca.crt", AUTHORITY.encode())
    (tmp_path / "token").write_text("second\n")
    assert access.authorization() == "Bearer second"


def test_a_service_with_plain_credentials_never_loads_the_package() -> None:
    script = "import sys, controller.__main__, kubeletplugin.wiring; print('kubernetes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert done.stdout == "False\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, for the server and for the client."""
    folder = tmp_path_factory.mktemp("pair")
    names = ["-subj", "/CN=me", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1", "-nodes"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    make_certificate(*names, *files)
    return folder / "tls.crt", folder / "tls.key"


class Greeter(BaseHTTPRequestHandler):
    """Answers with the common name of the certificate that the client presents."""

    def do_GET(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        shown = self.connection.getpeercert() or {}
        subject: Any = shown.get("subject", ())
        body = dict(pair for part in subject for pair in part)["commonName"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name of what is overridden
        """Tests read no access log."""


@pytest.fixture
def greeter(pair: tuple[Path, Path]) -> Iterator[int]:
    """The port of a server that wants a client certificate."""
    server = HTTPServer(("127.0.0.1", 0), Greeter)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pair[0]))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*pair)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("form", ["files", "data"])
def test_a_client_certificate_is_plain_and_is_presented(
    pair: tuple[Path, Path], greeter: int, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("client-certificate", "client-key")
    user = {name: str(path) for name, path in zip(names, pair, strict=True)}
    if form == "data":
        user = {
            f"{name}-data": b64encode(path.read_bytes()).decode()
            for name, path in zip(names, pair, strict=True)
        }
    cluster = {"server": f"https://127.0.0.1:{greeter}", "certificate-authority": str(pair[0])}

    access = access_of_kubeconfig(content(user, **cluster))

    assert access is not None
    assert access.authorization() is None
    assert access.transport.request("GET", f"{access.server}/").data == b"me"
    assert list(tmp_path.iterdir()) == []


def test_a_broken_client_certificate_is_an_error() -> None:
    with pytest.raises((OSError, ValueError)):
        access_of_kubeconfig(content({"client-certificate-data": "eA==", "client-key-data": "eA=="}))
