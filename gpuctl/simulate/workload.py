"""The workload file of ``gpuctl simulate``: groups of pods, their claims, when they come, how long they stay.

    version: v1
    pods:
      - name: train
        count: 200
        every_seconds: 30
        lasts_seconds: 3600
        busy_gpus: 1.9
        claims:
          - devices:
              requests:
                - name: gpus
                  exactly: {deviceClassName: gpu.nvidia.com, count: 2}

Each claim is the ``spec`` of a ResourceClaim; every pod of the group gets claims of its own. ``busy_gpus`` is
the work that a pod does on average, in GPUs, whatever it is given. Pods of a higher ``priority`` come first
where several wait. ``count`` may be left out if a trace says when pods come. With ``gang: 4`` each of them
is a gang of four such pods, which are placed together or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_wrapped

MOST_PODS = 1_000_000
"""The most pods of one group, and of a trace."""

MOST_IN_GANG = 1000

_SECONDS = {"type": "number", "minimum": 0}
_GROUP = {
    "type": "object",
    "required": ["name", "claims"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$"},
        "count": {"type": "integer", "minimum": 1, "maximum": MOST_PODS},
        "gang": {"type": "integer", "minimum": 1, "maximum": MOST_IN_GANG},
        "priority": {"type": "integer"},
        "starts_seconds": _SECONDS,
        "every_seconds": _SECONDS,
        "lasts_seconds": {"type": "number", "exclusiveMinimum": 0},
        "busy_gpus": {"type": "number", "minimum": 0},
        "claims": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["devices"],
                "additionalProperties": False,
                "properties": {"devices": {"type": "object"}},
            },
        },
    },
}
_SCHEMA = {
    "type": "object",
    "required": ["version", "pods"],
    "additionalProperties": False,
    "properties": {"version": {"const": "v1"}, "pods": {"type": "array", "minItems": 1, "items": _GROUP}},
}


@dataclass(frozen=True, slots=True)
class PodGroup:
    """``count`` equal pods: the first comes at ``starts_seconds``, then one ``every_seconds``.

    With ``gang`` each of them stands for a gang of so many pods, which are placed together or not at all.
    ``lasts_seconds`` is how long each pod runs once it is placed, None for ever. ``claims`` are the specs of
    its claims. ``busy_gpus`` is the work that each does, in GPUs, None if that is not known.
    """

    name: str
    count: int
    claims: tuple[Mapping[str, Any], ...]
    starts_seconds: float = 0.0
    every_seconds: float = 0.0
    lasts_seconds: float | None = None
    busy_gpus: float | None = None
    priority: int = 0
    gang: int = 1

    @property
    def pods(self) -> int:
        """How many pods come."""
        return self.count * self.gang

    @property
    def last_seconds(self) -> float:
        """When the last pod comes."""
        return self.starts_seconds + (self.count - 1) * self.every_seconds

    def devices_by_class(self) -> Counter[str]:
        """How many devices of each class a pod asks for; of alternatives only the first counts."""
        found: Counter[str] = Counter()
        for claim in self.claims:
            for request in claim["devices"].get("requests") or ():
                asked = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), None)
                if asked:
                    found[str(asked.get("deviceClassName") or "")] += int(asked.get("count") or 1)
        return found


def load_workload(path: Path, *, traced: bool = False) -> tuple[PodGroup, ...]:
    """Read a workload file; only if it is ``traced`` may groups lack a count, which is then 0.

    Raises ConfigError with every error in it, each with the path of its field.
    """
    try:
        _, document = load_wrapped(path.read_bytes(), str(path), what="workload")
    except OSError as error:
        raise ConfigError(
            f"the workload {path} cannot be read: {error.strerror}", "check --workload"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the workload {path} is not YAML: {error}", "correct it") from error
    errors = sorted(jsonschema.Draft202012Validator(_SCHEMA).iter_errors(document), key=lambda e: e.json_path)
    wrong = [
        f"{error.json_path.removeprefix('$').lstrip('.') or 'the document'}: {error.message}"
        for error in errors
    ]
    if not wrong:
        names = [group["name"] for group in document["pods"]]
        wrong = [
            f"pods: the name {name} is used twice"
            for name in sorted({n for n in names if names.count(n) > 1})
        ]
        wrong += [
            f"pods[{index}]: count is missing, which only --trace can replace"
            for index, group in enumerate(document["pods"])
            if not traced and "count" not in group
        ]
        wrong += [
            f"pods[{index}]: these are more than {MOST_PODS:,} pods"
            for index, group in enumerate(document["pods"])
            if group.get("count", 0) * group.get("gang", 1) > MOST_PODS
        ]
    if wrong:
        raise ConfigError(
            f"the workload {path} is wrong: " + "; ".join(wrong), "see `gpuctl simulate --help`"
        )
    return tuple(
        PodGroup(**{"count": 0, **group, "claims": tuple(group["claims"])}) for group in document["pods"]
    )
