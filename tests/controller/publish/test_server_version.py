"""An API server that is too old is named and gets no slices; one that does not tell keeps nothing back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.publish.server_version import SupportedServer, server_version
from tests.clusters import EmbeddedApiServer, KubeClient
from tests.controller.heard_events import HeardEvents
from tests.eventually import WAIT_SECONDS


class Waits:
    """What the floor says that the controller waits for."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.refused = threading.Event()

    def __call__(self, sentence: str) -> None:
        self.told.append(sentence)
        if sentence:
            self.refused.set()


Asked = tuple[SupportedServer, HeardEvents, Waits, threading.Event]


@pytest.fixture
def asked(client: KubeClient) -> Asked:
    events, waits, stop = HeardEvents(), Waits(), threading.Event()
    return SupportedServer(client, events, stop, waits, again_seconds=0.05), events, waits, stop


@pytest.mark.parametrize("minor", ["36", "", None], ids=["the oldest", "empty", "away"])
def test_a_server_that_is_supported_or_does_not_tell_is_published_to(
    server: EmbeddedApiServer, asked: Asked, minor: str | None
) -> None:
    one, events, waits, _ = asked
    if minor is None:
        server.stop()
    else:
        server.minor = minor

    assert one.wait()
    assert events.posted == []
    assert waits.told == [""]


def test_a_server_that_is_too_old_is_named_once_until_it_was_upgraded(
    server: EmbeddedApiServer, asked: Asked
) -> None:
    server.minor = "35+"
    one, events, waits, _ = asked
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(one.wait)
        assert waits.refused.wait(WAIT_SECONDS)
        server.minor = "36"

        assert wait.result(WAIT_SECONDS)

    ((kind, reason, message),) = events.posted
    assert (kind, reason) == ("Warning", "KubernetesTooOld")
    assert "Kubernetes 1.35" in message
    assert "1.36 is the oldest" in message
    assert waits.told == [message, ""]


@pytest.mark.parametrize(
    ("minor", "version"),
    [("36", (1, 36)), ("36+", (1, 36)), ("9", (1, 9)), ("", None), ("x36", None), ("٣٦", None)],
)
def test_the_minor_version_is_its_digits(
    server: EmbeddedApiServer, client: KubeClient, minor: str, version: tuple[int, int] | None
) -> None:
    server.minor = minor
    assert server_version(client) == version


def test_a_process_that_ends_meanwhile_publishes_nothing(server: EmbeddedApiServer, asked: Asked) -> None:
    server.minor = "34"
    one, _, waits, stop = asked
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(one.wait)
        assert waits.refused.wait(WAIT_SECONDS)
        stop.set()
        assert not wait.result(WAIT_SECONDS)
