"""The time of the API server is that of its last answer, and goes on from there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driver.kube.client import KubeClient
from driver.kube.credentials import Credentials
from driver.kube.errors import NotFound
from envtest.embedded.server import EmbeddedApiServer

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_before_the_first_answer_it_is_this_machines(client: KubeClient) -> None:
    assert abs(client.server_time() - datetime.now(UTC)) < MINUTE


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_it_is_the_servers_and_goes_on(server: EmbeddedApiServer, tmp_path: Path, off: timedelta) -> None:
    clock = Clock()
    credentials = Credentials(server.write_kubeconfig(tmp_path / "kubeconfig"))
    client = KubeClient(credentials, "test", clock=clock)
    server.ahead_seconds = off.total_seconds()

    with pytest.raises(NotFound):  # a refusal tells the time as well
        client.get("/api/v1/nodes/nobody")

    assert abs(client.server_time() - datetime.now(UTC) - off) < MINUTE
    clock.now += 1800.0
    assert abs(client.server_time() - datetime.now(UTC) - off - HOUR / 2) < MINUTE
