"""The area of HTTP requests: written cases, and the two API servers that answer them."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from driver.errors import ConfigError
from envtest.client.errors import ClusterError
from envtest.embedded.server import EmbeddedApiServer
from envtest.real.api_server import api_server_alone
from envtest.real.assets import Assets
from envtest.real.build import DEFAULT_KUBERNETES
from tools.conformance.api.cases.reading import reading_cases
from tools.conformance.api.cases.writing import writing_cases
from tools.conformance.api.left_out import differences
from tools.conformance.api.playing import Server, play
from tools.conformance.area import Answer, Area, Case

_THREADS = 8
_SHOWN = 6


class Players:
    """Plays cases on one server, several at a time: some of them wait for the end of a watch."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer, in order."""
        asked = list(cases)
        with ThreadPoolExecutor(_THREADS) as pool:
            yield from zip(asked, pool.map(lambda case: play(case, self._server), asked), strict=True)


@contextmanager
def _embedded() -> Iterator[Players]:
    """The embedded API server alone, without controllers."""
    with EmbeddedApiServer() as api:
        host, _, port = api.address.rpartition(":")
        token, add_user = api.gate.admin_bearer, api.gate.add_user
        yield Players(Server(host, int(port), token, has_tls=False, add_user=add_user))


@contextmanager
def _real(oracle: Path) -> Iterator[Players]:
    """kube-apiserver and etcd from the folder of the oracle."""
    try:
        with api_server_alone(Assets(oracle.resolve().parent, DEFAULT_KUBERNETES)) as real:
            where = urlsplit(real.server)
            assert where.hostname is not None
            assert where.port is not None
            yield Players(Server(where.hostname, where.port, real.admin_token, has_tls=True))
    except ClusterError as error:
        raise ConfigError(str(error), "`python -m envtest.real build` makes its programs") from error


@cache
def written_cases() -> tuple[Case, ...]:
    """All cases of the tables."""
    return (*writing_cases(), *reading_cases())


def replayed(answered: Iterable[tuple[Case, Answer]]) -> Iterator[tuple[Case, Answer, Answer]]:
    """The cases with their answers and those of the embedded API server."""
    asked = list(answered)
    with _embedded() as players:
        ours = players.ask(case for case, _ in asked)
        for (case, answer), (_, own) in zip(asked, ours, strict=True):
            yield case, answer, own


@cache
def _of_this_process() -> Players:
    """The embedded API server of this process, for cases that come one by one."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_embedded())


def _difference(case: Case, answer: Answer) -> str | None:
    [(_, own)] = _of_this_process().ask([case])
    found = differences(case, answer, own)
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return f"{case['name']}:\n    " + "\n    ".join([*found[:_SHOWN], *more]) if found else None


AREA = Area(
    "api", written_cases, lambda rng: rng.choice(written_cases()), _difference, _real, written_only=True
)
