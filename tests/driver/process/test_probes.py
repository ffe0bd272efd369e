"""Probes are answered with a status and one line that says why."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from driver.process.probes import Probes, endpoint, serve
from tests.clusters import Service
from tests.gpus import ConfigError

WAIT_SECONDS = 20


@contextmanager
def served(probes: Probes) -> Iterator[int]:
    one = endpoint("127.0.0.1:0", probes)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield one.port
    finally:
        one.stop()
        thread.join()


def asked(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_each_path_answers_its_own_question() -> None:
    with served(Probes(lambda: "", lambda: "publisher hangs", lambda: "two\nlines")) as port:
        assert asked(port, "/startupz") == (200, "ok\n")
        assert asked(port, "/livez?verbose") == (503, "publisher hangs\n")
        assert asked(port, "/readyz") == (503, "two lines\n")
        code, text = asked(port, "/metrics")
        assert code == 404
        assert "/startupz, /livez, /readyz" in text


def test_an_address_that_is_none_is_named_with_its_flag() -> None:
    with pytest.raises(ConfigError, match="give --health-addr"):
        serve(Service(), "127.0.0.1:70000", Probes(lambda: "", lambda: "", lambda: ""))
