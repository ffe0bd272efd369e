"""The DeviceClasses that the project ships, and the samples that use them, read from their files."""

import copy
import json
from functools import cache
from pathlib import Path

import yaml

from tests.clusters import Object, SelectorDevice, compile_selector

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FILES = tuple(sorted((ROOT / "deviceclasses").glob("*.yaml")))
OPT_IN_FILES = tuple(sorted((ROOT / "deviceclasses" / "opt-in").glob("*.yaml")))
EXTENDED_RESOURCE = ROOT / "deploy/examples/mig/extended-resource.yaml"
PROFILES: tuple[str, ...] = tuple(yaml.safe_load((ROOT / "deploy/chart/mig-profiles.yaml").read_text()))
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


def class_of_profile(profile: str) -> Object:
    """The class of a MIG profile, as the sample has it for one and the chart makes it for all."""
    name = f"mig-{profile.replace('+', '.')}"
    text = json.dumps(_read(EXTENDED_RESOURCE)[0])
    made: Object = json.loads(text.replace("mig-1g.10gb", name).replace("'1g.10gb'", f"'{profile}'"))
    return made


DEFAULT = classes(*DEFAULT_FILES)
OPT_IN = classes(*OPT_IN_FILES)
OF_PROFILES = {one["metadata"]["name"]: one for one in map(class_of_profile, PROFILES)}
ALL = {**DEFAULT, **OPT_IN, **OF_PROFILES}


def matches(name: str, device: SelectorDevice) -> bool:
    """Whether all expressions of a class hold; raises what the scheduler would give up on the pod for."""
    return all(compile_selector(one).matches(device) for one in expressions(ALL[name]))
