"""The DeviceClasses that the project ships, and the samples that use them, read from their files."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kubernetes_rules.cel.selector import SelectorDevice, compile_selector

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FILES = tuple(sorted((ROOT / "deviceclasses").glob("*.yaml")))
OPT_IN_FILES = tuple(sorted((ROOT / "deviceclasses" / "opt-in").glob("*.yaml")))
SAMPLE_FILES = tuple(sorted((ROOT / "deploy" / "examples" / "mig").glob("*.yaml")))
SHARED_SAMPLE_FILES = tuple(sorted((ROOT / "deploy" / "examples" / "shared").glob("*.yaml")))


def objects(file: Path) -> list[Object]:
    """The objects in a file, in their order; the caller's own, though a file is read once in a process."""
    return copy.deepcopy(_read(file))


@cache
def _read(file: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one is not None]


def classes(*files: Path) -> dict[str, Object]:
    """The classes in these files by their names."""
    return {one["metadata"]["name"]: one for file in files for one in objects(file)}


def expressions(device_class: Object) -> list[str]:
    """The CEL expressions of a class, all of which have to hold."""
    return [selector["cel"]["expression"] for selector in device_class["spec"]["selectors"]]


DEFAULT = classes(*DEFAULT_FILES)
OPT_IN = classes(*OPT_IN_FILES)
ALL = {**DEFAULT, **OPT_IN}


def matches(name: str, device: SelectorDevice) -> bool:
    """Whether all expressions of a class hold; raises what the scheduler would give up on the pod for."""
    return all(compile_selector(one).matches(device) for one in expressions(ALL[name]))
