"""The two servers that are compared: kube-apiserver with its etcd, and the embedded API server."""

from __future__ import annotations

import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from driver.errors import ConfigError
from envtest.client.layout import ClusterLayout
from envtest.embedded.server import EmbeddedApiServer
from envtest.real.commands import etcd
from tools.conformance.api.connection import Connection, Server
from tools.conformance.api.playing import play
from tools.conformance.area import Answer, Case

_THREADS = 8
_START_SECONDS = 60.0


class Players:
    """Plays cases on one server, several at a time: some of them wait for the end of a watch."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._own = threading.local()

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer, in order."""
        with ThreadPoolExecutor(_THREADS) as pool:
            asked = list(cases)
            yield from zip(asked, pool.map(self._play, asked), strict=True)

    def _play(self, case: Case) -> Answer:
        with Connection(self._server) as connection:
            return play(case, connection)


class EmbeddedServer:
    """The embedded API server alone, without controllers; use it as a context manager."""

    def __enter__(self) -> Players:
        self._api = EmbeddedApiServer()
        self._api.start()
        where = urlsplit(self._api.url)
        assert where.hostname is not None
        assert where.port is not None
        gate = self._api.gate
        return Players(
            Server(where.hostname, where.port, gate.admin_bearer, has_tls=False, add_user=gate.add_user)
        )

    def __exit__(self, *_: object) -> None:
        self._api.stop()


class RealServer:
    """kube-apiserver and etcd from the folder of the oracle; use it as a context manager.

    Nothing else runs: no controller changes what a case has written.
    """

    def __init__(self, oracle: Path) -> None:
        self._folder = oracle.resolve().parent
        self._stack = ExitStack()

    def __enter__(self) -> Players:
        with ExitStack() as stack:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-api-")))
            port, token = _free_port(), secrets.token_hex(16)
            self._start_etcd(stack, work)
            self._start_api_server(stack, work, port, token)
            server = Server("127.0.0.1", port, token, has_tls=True)
            _wait_ready(server, work)
            self._stack = stack.pop_all()
            return Players(server)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_etcd(self, stack: ExitStack, work: Path) -> None:
        self._start(stack, work, "etcd", *etcd(ClusterLayout(work)))

    def _start_api_server(self, stack: ExitStack, work: Path, port: int, token: str) -> None:
        key = work / "accounts.key"
        command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
        subprocess.run(command, check=True, capture_output=True)
        (work / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        self._start(
            stack,
            work,
            "kube-apiserver",
            f"--etcd-servers=unix://{ClusterLayout(work).etcd_socket}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={work / 'certificates'}",
            f"--token-auth-file={work / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
        )

    def _start(self, stack: ExitStack, work: Path, program: str, *arguments: str) -> None:
        log = stack.enter_context((work / f"{program}.log").open("wb"))
        try:
            command = [str(self._folder / program), *arguments]
            process = subprocess.Popen(command, cwd=work, stdout=log, stderr=log)
        except OSError as error:
            raise ConfigError(
                f"{self._folder / program} cannot be started: {error.strerror}",
                "build it with `python -m envtest.real build`; it lies beside the oracle",
            ) from error
        stack.callback(process.wait)
        stack.callback(process.kill)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _wait_ready(server: Server, work: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        try:
            with Connection(server) as connection:
                if connection.exchange({"method": "GET", "target": "/readyz"}, b"").code == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    log = (work / "kube-apiserver.log").read_text(errors="replace").splitlines()[-3:]
    raise ConfigError(f"kube-apiserver does not get ready: {' '.join(log)}", "read what it says")
