"""The two servers that are compared: kube-apiserver with its etcd, and the embedded API server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from driver.errors import ConfigError
from envtest.client.errors import ClusterError
from envtest.embedded.server import EmbeddedApiServer
from envtest.real.api_server import api_server_alone
from envtest.real.assets import Assets
from envtest.real.build import DEFAULT_KUBERNETES
from tools.conformance.api.connection import Connection, Server
from tools.conformance.api.playing import play
from tools.conformance.area import Answer, Case

_THREADS = 8


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
    """kube-apiserver and etcd from the folder of the oracle; use it as a context manager."""

    def __init__(self, oracle: Path) -> None:
        self._assets = Assets(oracle.resolve().parent, DEFAULT_KUBERNETES)
        self._stack = ExitStack()

    def __enter__(self) -> Players:
        try:
            real = self._stack.enter_context(api_server_alone(self._assets))
        except ClusterError as error:
            raise ConfigError(str(error), "`python -m envtest.real build` makes its programs") from error
        where = urlsplit(real.server)
        assert where.hostname is not None
        assert where.port is not None
        return Players(Server(where.hostname, where.port, real.admin_token, has_tls=True))

    def __exit__(self, *_: object) -> None:
        self._stack.close()
