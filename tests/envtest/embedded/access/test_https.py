"""The embedded API server speaks HTTPS."""

from __future__ import annotations

import base64
import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from envtest.client.api import ApiClient
from envtest.embedded.api.requests import ADMIN
from envtest.embedded.api.served import ServerTls
from envtest.embedded.cluster import EmbeddedCluster
from envtest.embedded.server import EmbeddedApiServer
from tests.openssl import openssl


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


def https_server(authority: trustme.CA, folder: Path) -> EmbeddedApiServer:
    issued = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    for name, blobs in (("server.crt", issued.cert_chain_pems), ("server.key", [issued.private_key_pem])):
        (folder / name).write_bytes(b"".join(blob.bytes() for blob in blobs))
    trusted = authority.cert_pem.bytes().decode()
    (folder / "ca.crt").write_text(trusted)
    tls = ServerTls(trusted, folder / "server.crt", folder / "server.key")
    return EmbeddedApiServer(tls=tls)


def test_a_client_that_speaks_no_tls_does_no_harm(authority: trustme.CA, tmp_path: Path) -> None:
    with https_server(authority, tmp_path) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(b"GET /version HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                assert not plain.recv(100).startswith(b"HTTP/1.1 200")
        api = ApiClient(server.url, tmp_path / "ca.crt", server.gate.add_user(ADMIN))
        assert api.get("/version")["major"] == "1"


def test_a_cluster_makes_a_certificate_of_its_own(tmp_path: Path) -> None:
    openssl("version")
    with EmbeddedCluster(https=True) as cluster:
        assert cluster.server.startswith("https://127.0.0.1:")
        assert cluster.admin.stat().st_mode & 0o077 == 0
        config = json.loads(cluster.admin.read_text())
        trusted = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        (tmp_path / "ca.crt").write_bytes(trusted)
        api = ApiClient(cluster.server, tmp_path / "ca.crt", config["users"][0]["user"]["token"])
        assert api.get("/api/v1/nodes/node-0")["metadata"]["name"] == "node-0"
