"""To prepare a GPU, to explain a pod and to serve a POST takes few files."""

from __future__ import annotations

from tools.bench.call_paths import MOST, measured


def test_the_paths_are_short() -> None:
    longer = {name: len(files) for name, files in measured().items() if len(files) > MOST[name]}

    assert longer == {}
