"""The workload file of ``gpuctl simulate``: groups of pods, and their claims.

    version: v1
    pods:
      - name: train
        count: 200
        claims:
          - devices:
              requests:
                - name: gpus
                  exactly: {deviceClassName: gpu.nvidia.com, count: 2}

Each claim is the ``spec`` of a ResourceClaim; every pod of the group gets claims of its own. Pods of a higher
``priority`` come first. With ``gang: 4`` each pod stands for a gang of four, which are placed together or not
at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_wrapped
from gpuctl.cli.fields import wrong_fields

MOST_PODS = 1_000_000
"""The most pods of one group."""

_GROUP = {
    "type": "object",
    "required": ["name", "count", "claims"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$"},
        "count": {"type": "integer", "minimum": 1, "maximum": MOST_PODS},
        "gang": {"type": "integer", "minimum": 1, "maximum": 1000},
        "priority": {"type": "integer"},
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
    """``count`` equal pods, or gangs of ``gang`` such pods; ``claims`` are the claims' specs of each."""

    name: str
    count: int
    claims: tuple[Mapping[str, Any], ...]
    priority: int = 0
    gang: int = 1

    @property
    def pods(self) -> int:
        """How many pods come."""
        return self.count * self.gang


def load_workload(path: Path) -> tuple[PodGroup, ...]:
    """Read a workload file; raises ConfigError with every error in it, each with the path of its field."""
    try:
        _, document = load_wrapped(path.read_bytes(), str(path), what="workload")
    except OSError as error:
        raise ConfigError(
            f"the workload {path} cannot be read: {error.strerror}", "check --workload"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the workload {path} is not YAML: {error}", "correct it") from error
    wrong = wrong_fields(_SCHEMA, document)
    if not wrong:
        groups = [PodGroup(**{**group, "claims": tuple(group["claims"])}) for group in document["pods"]]
        names = Counter(group.name for group in groups)
        wrong = [f"pods: the name {name} is used twice" for name, count in names.items() if count > 1]
        wrong += [
            f"pods[{index}]: these are more than {MOST_PODS:,} pods"
            for index, group in enumerate(groups)
            if group.pods > MOST_PODS
        ]
    if wrong:
        raise ConfigError(
            f"the workload {path} is wrong: " + "; ".join(wrong), "see `gpuctl simulate --help`"
        )
    return tuple(groups)
