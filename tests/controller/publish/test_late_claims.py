"""Claims are followed for a while after devices were withdrawn, and no longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.publish.changeover import Known, Seen, followed
from driver.policy.offers import Offers

SECONDS = 1800.0
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


class Scene:
    """A clock that a test moves, and what is known at it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.known = Known()

    def check(self, *stored: dict[str, Any], withdraws: bool = False, late: bool = False) -> bool:
        """One sync; whether claims are followed after it."""
        gone = {"metadata": {}, "spec": {"devices": [{"name": "gone"}] if withdraws else []}}
        avoided = frozenset({"gone"} if late else ())
        seen = Seen(Offers((), ()), frozenset(), [*stored, gone], avoided)
        self.known = followed(self.known, seen, SECONDS, self.now, NOW)
        return self.known.follow_until is not None


def written(seconds_ago: float, *, updated_ago: float | None = None) -> dict[str, Any]:
    """A slice of this age."""

    def ago(seconds: float) -> str:
        return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    metadata: dict[str, Any] = {"creationTimestamp": ago(seconds_ago)}
    if updated_ago is not None:
        metadata["managedFields"] = [{"manager": "other"}, {"manager": "us", "time": ago(updated_ago)}]
    return {"metadata": metadata, "spec": {}}


def test_nobody_follows_the_claims_where_nothing_goes_away() -> None:
    scene = Scene()
    assert not scene.check()
    assert not scene.check(written(10.0))


def test_they_are_followed_from_the_withdrawal_on_until_the_time_is_over() -> None:
    scene = Scene()
    assert scene.check(withdraws=True)
    scene.now += SECONDS - 1
    assert scene.check()
    scene.now += 1
    assert not scene.check()


def test_another_withdrawal_begins_the_time_anew() -> None:
    scene = Scene()
    scene.check(withdraws=True)
    scene.now += SECONDS - 1
    scene.check(withdraws=True)
    scene.now += SECONDS - 1
    assert scene.check()


def test_an_allocation_that_came_late_is_followed_until_the_plugin_has_it() -> None:
    scene = Scene()
    scene.check(withdraws=True)
    scene.now += 2 * SECONDS
    assert scene.check(late=True)
    assert not scene.check()


@pytest.mark.parametrize(
    ("stored", "followed"),
    [
        (written(60.0), True),
        (written(SECONDS + 1), False),
        (written(9 * SECONDS, updated_ago=60.0), True),
        (written(9 * SECONDS, updated_ago=SECONDS + 1), False),
        ({"metadata": {}, "spec": {}}, False),
    ],
)
def test_a_new_controller_follows_them_where_slices_were_written_just_before(
    stored: dict[str, Any], followed: bool
) -> None:
    scene = Scene()
    assert scene.check(stored) is followed
    scene.now += SECONDS - 60.0
    assert not scene.check(written(1.0))
