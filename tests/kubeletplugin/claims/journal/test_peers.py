"""An instance knows when another may have written, and starts when no other does."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.errors import StorageError
from kubeletplugin.claims.journal.locks import Peers


def test_a_lone_instance_knows_that_nobody_else_wrote(tmp_path: Path) -> None:
    may_have_written = Peers(tmp_path / "peers").watch()

    assert may_have_written(), "what was there before the start has to be read once"
    assert not may_have_written()


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


def test_an_instance_that_came_and_went_unseen_is_noticed(tmp_path: Path) -> None:
    may_have_written = Peers(tmp_path / "peers").watch()
    may_have_written()

    Peers(tmp_path / "peers").close()

    assert may_have_written()
    assert not may_have_written()


def test_each_asker_is_told_whatever_the_others_were_told(tmp_path: Path) -> None:
    peers = Peers(tmp_path / "peers")
    early, late = peers.watch(), peers.watch()
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
