"""A value is read when somebody asks and it is old, once for all; after a failure the last one stays."""

import asyncio
import threading

import pytest

from gpuctl.web.reading import Kept
from tests.clusters import Unreachable


class Source:
    """What is read: each reading takes so long, and fails or gives the next number."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes_seconds = 0.0
        self.readings = 0
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()

    def read(self) -> int:
        self.readings += 1
        self.goes_on.wait(30)
        self.now += self.takes_seconds
        if self.error is not None:
            raise self.error
        return self.readings


def kept(source: Source) -> Kept[int]:
    return Kept(source.read, asyncio.Lock(), lambda: source.now)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr("gpuctl.web.reading.LEAST_AGE_SECONDS", 2.0)
    monkeypatch.setattr("gpuctl.web.reading.AGE_FACTOR", 10)
    return Source()


@pytest.mark.parametrize(("takes_seconds", "lasts_seconds"), [(0.0, 2.0), (0.1, 2.0), (8.0, 80.0)])
def test_it_is_read_again_when_it_is_ten_times_as_old_as_the_reading_took(
    source: Source, takes_seconds: float, lasts_seconds: float
) -> None:
    async def look() -> list[int | None]:
        value, found = kept(source), []
        source.takes_seconds = takes_seconds
        for later in (0.0, lasts_seconds - 0.01, 0.02):
            source.now += later
            found.append(await value.latest(30))
        return found

    assert asyncio.run(look()) == [1, 1, 2]


def test_all_who_ask_meanwhile_share_a_reading(source: Source) -> None:
    async def look() -> list[int | None]:
        value = kept(source)
        return await asyncio.gather(*(value.latest(30) for _ in range(20)))

    assert asyncio.run(look()) == [1] * 20
    assert source.readings == 1


def test_who_is_not_patient_gets_the_old_value(source: Source) -> None:
    async def look() -> tuple[int | None, int | None]:
        value = kept(source)
        await value.latest(30)
        source.now += 3
        source.goes_on.clear()
        old = await value.latest(0.01)
        source.goes_on.set()
        return old, await value.latest(30)

    assert asyncio.run(look()) == (1, 2)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unreachable("GET /: no answer", "check the API server"), "no answer; check the API server"),
        (KeyError("metadata"), "the server of this page has failed (KeyError: 'metadata')"),
    ],
)
def test_a_failure_keeps_the_last_value_until_a_reading_succeeds(
    source: Source, error: Exception, words: str
) -> None:
    async def look() -> list[tuple[int | None, str]]:
        value, found = kept(source), []
        for number in range(3):
            source.error = error if number == 1 else None
            found.append((await value.latest(30), value.failure))
            source.now += 3
        return found

    first, failed, last = asyncio.run(look())

    assert (first, last) == ((1, ""), (3, ""))
    assert failed[0] == 1
    assert words in failed[1]
