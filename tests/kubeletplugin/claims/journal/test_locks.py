"""Keys exclude each other between threads and processes; an instance knows when another may have written."""

import multiprocessing
import sys
import threading
from collections.abc import Iterator
from itertools import permutations
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.gpus import ClaimBlocked, StorageError
from tests.plugin import KeyedLocks, Peers


@pytest.fixture(autouse=True)
def _keys_in_order() -> None:
    """Here one thread stands for several, so it takes keys in any order."""


def test_a_held_key_blocks_a_thread_until_it_gives_up(tmp_path: Path) -> None:
    locks = KeyedLocks(tmp_path / "locks")

    with (
        locks.holding(["claim a", "GPU 1"], 1),
        pytest.raises(ClaimBlocked, match=r"GPU 1 is still being worked on"),
        locks.holding(["claim b", "GPU 1"], 0.01),
    ):
        pass


def test_keys_are_taken_in_one_order_whatever_order_they_are_named_in(tmp_path: Path) -> None:
    locks, keys = KeyedLocks(tmp_path / "locks"), ["claim a", "claim b", "GPU 1", "GPU 2", "GPU 3"]
    for position, first in enumerate(keys):
        for named in permutations(keys[position:]):
            with (
                locks.holding(keys[position:], 1),
                pytest.raises(ClaimBlocked, match=f"{first} is still"),
                locks.holding(named, 0),
            ):
                pass


def _hold(path: Path, channel: Connection) -> None:
    with KeyedLocks(path).holding(["GPU 1"], 5):
        channel.send("held")
        channel.recv()
        channel.send("letting go")


def test_a_key_held_by_another_process_is_waited_for(tmp_path: Path) -> None:
    """Who gives up in time has nothing of what it had taken."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(tmp_path / "locks", there))
    process.start()
    locks = KeyedLocks(tmp_path / "locks")
    try:
        assert here.recv() == "held"
        with (
            pytest.raises(ClaimBlocked, match="another instance of the plugin still works on GPU 1"),
            locks.holding(["claim a", "GPU 1"], 0.05),
        ):
            pass
        with locks.holding(["claim a"], 0.05):
            here.send("go")
        with locks.holding(["GPU 1"], 30):
            assert here.poll(), "it was let go before"
    finally:
        here.close()
        process.join(10)


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads that take turns after nearly every step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless_threads")
def test_who_gives_up_at_once_never_disturbs_who_lets_go(tmp_path: Path) -> None:
    locks = KeyedLocks(tmp_path / "locks")
    over = threading.Event()
    failures: list[Exception] = []

    def hold_often() -> None:
        try:
            for _ in range(2000):
                with locks.holding(["GPU 1"], 20):
                    pass
        except (KeyError, ClaimBlocked) as error:
            failures.append(error)
        over.set()

    def try_often() -> None:
        while not over.is_set():
            try:
                with locks.holding(["GPU 1"], 0):
                    pass
            except ClaimBlocked:
                continue
            except KeyError as error:
                failures.append(error)
                over.set()

    threads = [threading.Thread(target=run, daemon=True) for run in (hold_often, *[try_often] * 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_second_instance_is_noticed_while_it_lives_and_once_after(tmp_path: Path) -> None:
    first = Peers(tmp_path / "peers")
    first_asks = first.watch()
    first_asks()
    assert first.alone()
    second = Peers(tmp_path / "peers")
    second_asks = second.watch()

    assert first_asks()
    assert first_asks()
    assert second_asks()
    assert not first.alone()
    assert not second.alone()
    second.close()
    assert first_asks()
    assert not first_asks()
    assert first.alone()


def test_each_asker_is_told_whatever_the_others_were_told(tmp_path: Path) -> None:
    peers = Peers(tmp_path / "peers")
    early, late = peers.watch(), peers.watch()
    # What was there before the start has to be read once.
    assert (early(), early(), late(), late()) == (True, False, True, False)

    Peers(tmp_path / "peers").close()

    assert (early(), early(), late(), late()) == (True, False, True, False)


def test_an_instance_that_does_not_get_through_its_start_is_named(tmp_path: Path) -> None:
    first, second = Peers(tmp_path / "peers"), Peers(tmp_path / "peers")

    with (
        first.starting(1),
        pytest.raises(StorageError, match=r"peers and has not started within 0 s: .*hangs"),
        second.starting(0.01),
    ):
        pass


def test_an_instance_that_fails_in_its_start_keeps_nobody_from_starting(tmp_path: Path) -> None:
    failing, next_one = Peers(tmp_path / "peers"), Peers(tmp_path / "peers")
    with pytest.raises(StorageError), failing.starting(1):
        raise StorageError("the disk is full")

    with next_one.starting(0):
        pass
