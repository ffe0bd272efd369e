"""Our own writes count until the watch has seen them, and not longer."""

from typing import Any

from controller.publish.own_writes import OwnWrites


class Copy:
    """What a reflector would have copied, changed at will."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.seen = "10"

    def snapshot(self) -> tuple[list[dict[str, Any]], str]:
        return self.objects, self.seen


def item(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_a_write_that_the_watch_has_not_seen_is_there_already() -> None:
    copied = Copy()
    own_writes = OwnWrites(copied.snapshot)
    copied.objects, copied.seen = [item("a", 8)], "9"

    own_writes.wrote(item("a", 10))
    own_writes.wrote(item("b", 12))

    found = sorted(one["metadata"]["resourceVersion"] for one in own_writes.objects())
    assert found == ["10", "12"], "versions are compared as numbers"


def test_a_foreign_change_that_is_newer_wins() -> None:
    copied = Copy()
    own_writes = OwnWrites(copied.snapshot)
    own_writes.wrote(item("a", 11))

    copied.objects, copied.seen = [item("a", 13)], "13"

    assert own_writes.objects() == [item("a", 13)]


def test_a_write_that_somebody_deleted_is_gone_as_soon_as_the_watch_has_passed_it() -> None:
    copied = Copy()
    own_writes = OwnWrites(copied.snapshot)
    own_writes.wrote(item("a", 11))

    copied.seen = "12"

    assert own_writes.objects() == []


def test_what_we_deleted_stays_away_while_the_copy_still_has_it() -> None:
    copied = Copy()
    own_writes = OwnWrites(copied.snapshot)
    copied.objects = [item("a", 9)]

    own_writes.deleted(item("a", 9))

    assert own_writes.objects() == []
    assert own_writes.objects() == []
