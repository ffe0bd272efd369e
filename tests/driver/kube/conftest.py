"""An API server and a client of it for each test, and a certificate for all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer, KubeClient
from tests.openssl import make_certificate


@pytest.fixture
def client(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[KubeClient]:
    connected = KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, for the server and for the client."""
    folder = tmp_path_factory.mktemp("pair")
    names = ["-subj", "/CN=me", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1", "-nodes"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    make_certificate(*names, *files)
    return folder / "tls.crt", folder / "tls.key"
