"""An endpoint that runs for a while, and what it answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from driver.process.http_endpoint import HttpEndpoint
from tests.eventually import WAIT_SECONDS
from tests.running import running as in_a_thread


@contextmanager
def running(endpoint: HttpEndpoint) -> Iterator[int]:
    """The endpoint runs meanwhile; its port."""
    with in_a_thread(endpoint.run, endpoint.stop):
        yield endpoint.port


def asked(port: int, path: str = "/", host: str = "127.0.0.1") -> tuple[int, str]:
    """The status and the text of an answer."""
    connection = HTTPConnection(host, port, timeout=WAIT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
