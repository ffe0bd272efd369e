"""One of several replicas holds the Lease, whatever their clocks say."""

import threading
from datetime import UTC, datetime

import pytest

from driver.kube.lease import DURATION_SECONDS, RENEW_SECONDS, Lease
from tests.clock import Clock
from tests.clusters import EmbeddedApiServer, KubeClient

PATH = "/apis/coordination.k8s.io/v1/namespaces/gpu-dra/leases/preemptor"


def replica(client: KubeClient, identity: str, clock: Clock) -> Lease:
    return Lease(client, "gpu-dra", "preemptor", identity, threading.Event(), clock=clock)


@pytest.fixture(autouse=True)
def _namespace(server: EmbeddedApiServer) -> None:
    server.create("/api/v1/namespaces", {"metadata": {"name": "gpu-dra"}})


@pytest.fixture
def clock(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the replicas and of the server."""
    clock = Clock(1000.0)
    # The server's own tells renewals of a test apart by microseconds, which may be the same three times. Then
    # nothing is written, and the other replica takes the Lease.
    monkeypatch.setattr(client, "server_time", lambda: datetime.fromtimestamp(clock(), UTC))
    return clock


@pytest.fixture
def two(client: KubeClient, clock: Clock) -> tuple[Lease, Lease]:
    """Two replicas, of which the first has begun."""
    one, other = replica(client, "one", clock), replica(client, "other", clock)
    one.try_once()
    return one, other


def test_whoever_cannot_renew_it_stops_before_the_other_starts(
    client: KubeClient, clock: Clock, two: tuple[Lease, Lease]
) -> None:
    one, other = two
    other.try_once()

    clock.now += RENEW_SECONDS
    other.try_once()
    assert (one.is_held(), other.is_held()) == (False, False)
    clock.now += DURATION_SECONDS - RENEW_SECONDS
    other.try_once()
    assert (one.is_held(), other.is_held()) == (False, True)
    assert client.get(PATH)["spec"]["leaseTransitions"] == 1


def test_a_replica_with_another_time_of_day_only_counts_its_own_seconds(
    client: KubeClient, clock: Clock, two: tuple[Lease, Lease]
) -> None:
    _, other = two
    stored = client.get(PATH)
    stored["spec"] |= dict.fromkeys(("renewTime", "acquireTime"), "2001-01-01T00:00:00.000000Z")
    client.replace(PATH, stored)

    other.try_once()
    assert not other.is_held(), "the time in the Lease is long ago, but it has only just seen it"
    clock.now += DURATION_SECONDS
    other.try_once()
    assert other.is_held()


def test_a_holder_that_renews_it_keeps_it(clock: Clock, two: tuple[Lease, Lease]) -> None:
    one, other = two
    for _ in range(10):
        one.try_once()
        other.try_once()
        assert (one.is_held(), other.is_held()) == (True, False)
        clock.now += RENEW_SECONDS / 2


def test_it_is_lost_at_once_when_somebody_else_has_written_it(
    client: KubeClient, two: tuple[Lease, Lease]
) -> None:
    one, _ = two
    stored = client.get(PATH)
    stored["spec"]["holderIdentity"] = "other"
    client.replace(PATH, stored)

    one.try_once()

    assert not one.is_held()


def test_a_replica_that_stops_gives_it_to_the_next(client: KubeClient) -> None:
    stop = threading.Event()
    told: list[bool] = []

    def changed() -> None:
        told.append(one.is_held())
        stop.set()

    one = Lease(client, "gpu-dra", "preemptor", "one", stop, changed)
    one.run()
    other = replica(client, "other", Clock(1000.0))
    other.try_once()

    assert told == [True]
    assert other.is_held()
