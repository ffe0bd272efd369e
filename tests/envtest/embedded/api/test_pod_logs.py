"""The log of a pod's container over HTTP: what of it is asked for, as it grows, and why there is none.

The words are those of kube-apiserver and kubelet 1.37.
"""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from envtest.embedded.api.container_log import ContainerLog
from tests.clusters import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, ask, pod, shown

LOG = f"{PODS}/p/log"


class Logs:
    """The log of the container ``c`` of the pod ``p``."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        self.server = server
        self.uid = server.create(PODS, pod("p", nodeName="n"))["metadata"]["uid"]
        self.log = ContainerLog(server.store.changed)
        server.find_log = lambda uid, name: self.log if (uid, name) == (self.uid, "c") else None

    def text(self, query: str = "") -> str:
        with self.open(query) as answer:
            assert answer.status == 200
            assert answer.getheader("Content-Type") == "text/plain"
            return answer.read().decode()

    @contextmanager
    def open(self, query: str = "") -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.server.address, timeout=20)
        try:
            connection.request("GET", f"{LOG}?{query}", headers=shown(self.server))
            with connection.getresponse() as answer:
                yield answer
        finally:
            connection.close()


@pytest.fixture
def logs() -> Iterator[Logs]:
    with EmbeddedApiServer() as server:
        yield Logs(server)


def test_all_lines_are_answered_or_the_last_ones(logs: Logs) -> None:
    assert logs.text() == ""
    logs.log.print("one\ntwo\n")
    logs.log.print("three\n")

    assert logs.text() == "one\ntwo\nthree\n"
    assert logs.text("container=c&tailLines=2") == "two\nthree\n"
    assert logs.text("tailLines=0") == ""
    assert logs.text("tailLines=9") == "one\ntwo\nthree\n"
    assert logs.text("limitBytes=5") == "one\nt"


def test_who_follows_gets_each_line_until_the_container_ends(logs: Logs) -> None:
    logs.log.print("zero\none\n")
    with logs.open("follow=true&tailLines=1") as answer:
        assert answer.readline() == b"one\n"
        logs.log.print("two\n")
        assert answer.readline() == b"two\n"
        logs.log.print("three\n")
        logs.log.end()
        assert answer.read() == b"three\n"


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("container=zz", 400, "container zz is not valid for pod p"),
        ("previous=true", 400, 'previous terminated container "c" in pod "p" not found'),
        ("tailLines=abc", 400, "tailLines has to be a number"),
        (
            "tailLines=-1",
            422,
            'PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(logs: Logs, query: str, code: int, words: str) -> None:
    answer = ask(logs.server, "GET", f"{LOG}?{query}")

    assert answer.code == code
    assert words in answer.body["message"]
