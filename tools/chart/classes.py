"""The DeviceClasses that the chart can install: each class by its name, opt-in ones by their file."""

from __future__ import annotations

from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deviceclasses"


def class_toggles() -> dict[str, bool]:
    """The names of the classes in ``deviceclasses/``, all on."""
    return {name: True for file in sorted(FOLDER.glob("*.yaml")) for name in class_names(file)}


def opt_in_toggles() -> dict[str, bool]:
    """The files in ``deviceclasses/opt-in/``, all off: they stand for resources of a device plugin."""
    return {file.stem: False for file in sorted((FOLDER / "opt-in").glob("*.yaml"))}


def class_names(file: Path) -> list[str]:
    """The names of the classes in a file."""
    return [one["metadata"]["name"] for one in yaml.safe_load_all(file.read_text()) if one]
