"""A process that verifies or restores the fake machine in a folder, and prints each step before it is done.

``python -m tests.gpuctl.verify.change.verifying FOLDER KIND...`` tries these kinds alone; without any kind it
restores.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driver.process.log import configure
from gpuctl.doctor.check import Result
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.verify.change import run
from gpuctl.verify.change.kinds import Kind, kinds_of
from gpuctl.verify.change.undo import restore
from gpuctl.verify.subject import Subject
from tests.gpus import FakeMachine

PLACES = "places.json"
"""The file in the folder with the places of the node."""


def some_of(patch: pytest.MonkeyPatch, chosen: Callable[[tuple[Kind, ...]], tuple[Kind, ...]]) -> None:
    """Try only some of the kinds, since each takes a second."""
    patch.setattr(run, "kinds_of", lambda *given, **named: chosen(kinds_of(*given, **named)))


def places_in(folder: Path) -> Places:
    """The places of the node in a folder."""
    kept: dict[str, Any] = json.loads((folder / PLACES).read_text())
    paths = {name: Path(value) for name, value in kept.items() if name.endswith(("_dir", "root"))}
    return Places(**{**kept, **paths, "driver_root": kept["driver_root"], "host_driver_root": ""})


def say(step: str) -> None:
    """Print a step at once."""
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


def main(folder: Path, names: list[str]) -> int:
    """Verify or restore; 1 if anything fails."""
    configure("error")
    places = places_in(folder)
    if not names:
        return _shown(restore(places, say))

    machine = FakeMachine.open(places.nvml)
    with pytest.MonkeyPatch.context() as patch:
        some_of(patch, lambda kinds: tuple(one for one in kinds if one.name in names))
        found = run.verify_changes(Subject(places, look_at_node(places), machine.nvml), say)
    return _shown(found)


def _shown(results: tuple[Result, ...]) -> int:
    for one in results:
        say(f"result: {one.check}: {one.status}: {one.message} {' | '.join(one.details)}")
    return int(any(one.status in ("fail", "warn") for one in results))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
