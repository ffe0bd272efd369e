"""Two plugins that stay are two releases; two that meet in an update are not."""

import pytest

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


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        ([(0, 2), (599,), (600,), (601, 3), (6000,)], [0, 0, 1, 1, 1]),
        # Two that meet in an update, and two that stay then.
        ([(0, 2), (30, 1), (700,), (800, 2), (1399,), (1400,)], [0, 0, 0, 0, 0, 1]),
        # One that came back.
        ([(0, 2), (600,), (700, 1), (800, 2), (1400,)], [0, 1, 1, 1, 2]),
        ([(0,), (1000, 1), (5000, 0), (9000,)], [0, 0, 0, 0]),
    ],
)
def test_those_that_stay_beside_each_other_are_told_each_time(
    happens: list[tuple[int, ...]], told: list[int]
) -> None:
    scene = Scene()
    assert [scene.at(*one) for one in happens] == told
    for text in scene.told:
        assert "2 kubelet plugins have served on this node for 10 minutes" in text
        assert "keep one release" in text
