"""Two plugins that stay are two releases; two that meet in an update are not."""

from __future__ import annotations

from controller.plugin.serving import SeveralPlugins

AFTER_SECONDS = 600.0


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.several_plugins = SeveralPlugins(self.told.append, AFTER_SECONDS, lambda: self.now)

    def at(self, seconds: float, count: int | None = None) -> int:
        """How often it was told by then; ``count`` is how many serve from then on."""
        self.now = seconds
        if count is not None:
            self.several_plugins.serving(count)
        self.several_plugins.check()
        return len(self.told)


def test_two_that_stay_are_told_once() -> None:
    scene = Scene()

    assert [scene.at(0, 2), scene.at(599), scene.at(600), scene.at(601, 3), scene.at(6000)] == [0, 0, 1, 1, 1]
    assert "2 kubelet plugins have served on this node for 10 minutes" in scene.told[0]
    assert "keep one release" in scene.told[0]


def test_two_that_meet_in_an_update_are_not_told() -> None:
    scene = Scene()

    assert [scene.at(0, 2), scene.at(30, 1), scene.at(700), scene.at(800, 2), scene.at(1399)] == [0] * 5
    assert scene.at(1400) == 1


def test_one_that_came_back_is_told_again() -> None:
    scene = Scene()

    assert [scene.at(0, 2), scene.at(600), scene.at(700, 1), scene.at(800, 2), scene.at(1400)] == [
        0,
        1,
        1,
        1,
        2,
    ]


def test_none_and_one_are_well() -> None:
    scene = Scene()

    assert [scene.at(0), scene.at(1000, 1), scene.at(5000, 0), scene.at(9000)] == [0] * 4
