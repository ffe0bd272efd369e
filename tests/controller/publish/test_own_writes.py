"""Our own writes count until the watch has seen them, and not longer."""

import pytest

from controller.publish.own_writes import OwnWrites
from tests.clusters import Object


def item(uid: str, version: int) -> Object:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("copied", "seen", "wrote", "counts"),
    [
        # Versions are compared as numbers.
        ([item("a", 8)], "9", [item("a", 10), item("b", 12)], [item("a", 10), item("b", 12)]),
        ([item("a", 13)], "13", [item("a", 11)], [item("a", 13)]),
        ([], "12", [item("a", 11)], []),
    ],
    ids=["the watch has not seen them", "a foreign change is newer", "somebody deleted it"],
)
def test_a_write_counts_until_the_watch_has_passed_it(
    copied: list[Object], seen: str, wrote: list[Object], counts: list[Object]
) -> None:
    own_writes = OwnWrites(lambda: (copied, seen))
    for one in wrote:
        own_writes.wrote(one)

    assert own_writes.objects() == counts


def test_what_we_deleted_stays_away_while_the_copy_still_has_it() -> None:
    own_writes = OwnWrites(lambda: ([item("a", 9)], "10"))

    own_writes.deleted(item("a", 9))

    assert own_writes.objects() == own_writes.objects() == []
