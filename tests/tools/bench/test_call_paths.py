"""A claim for a whole GPU, and a reading of GPUs, pass through few files and stay long in each room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bench.call_paths import measured, room_of

ROOT = Path(__file__).resolve().parents[3]
MOST = {"prepare a whole GPU": (40, 95), "read three GPUs": (40, 130)}
"""The most files, and the most changes of room."""


def test_the_paths_are_short() -> None:
    paths = measured(ROOT)
    assert paths.keys() == MOST.keys()
    longer = {
        name: (len(path.files), path.changes)
        for name, path in paths.items()
        if len(path.files) > MOST[name][0] or path.changes > MOST[name][1]
    }
    assert longer == {}


@pytest.mark.parametrize(
    ("file", "room"),
    [
        ("kubeletplugin/claims/journal/locks.py", "kubeletplugin/journal"),
        ("kubeletplugin/claims/metadata.py", "kubeletplugin/metadata"),
        ("kubeletplugin/devices/hardware.py", "kubeletplugin"),
        ("driver/errors.py", "driver/errors"),
        ("driver/nvml/health/calls.py", "driver/nvml"),
        ("driver/nvml.py", "driver/nvml"),
    ],
)
def test_a_file_belongs_to_the_innermost_room_of_then(file: str, room: str) -> None:
    assert room_of(file) == room
