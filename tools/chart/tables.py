"""The tables of the chart's values in docs/configuration.md.

``tools.chart.generate`` and ``tools.docs.lookup`` write and check them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from tools.chart.nvidia import nvidia_values
from tools.chart.schema import meaning_of
from tools.chart.values import Values
from tools.docs.lookup.marked import Parts, code, table

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart"
NVIDIA_VALUES = CHART / "nvidia-values.yaml"

SECTIONS = {
    "Image": ("image", "imagePullSecrets"),
    "GPUs and classes": ("nodeConfig", "deviceClasses", "optInClasses", "devicePlugin"),
    "Nodes": (
        "gpuNodes",
        "nodeSelector",
        "affinity",
        "tolerations",
        "priorityClassName",
        "criticalPodsQuota",
        "updateStrategy",
    ),
    "Host and cluster": (
        "driver",
        "kubeletRoot",
        "cdiDir",
        "apiServer",
        "hostNetwork",
        "logLevel",
        "extraEnv",
        "extraVolumes",
        "extraVolumeMounts",
        "openshift",
    ),
    "Controller": ("controller",),
    "Kubelet plugin": ("plugin",),
    "MPS supervisor": ("mps",),
    "Webhook": ("webhook",),
    "Page": ("page",),
    "Preemptor": ("preemptor",),
    "IMEX channels": ("cliques",),
    "Metrics and networks": (
        "metrics",
        "serviceMonitor",
        "prometheusRule",
        "dashboards",
        "networkPolicy",
    ),
    "Uninstall": ("uninstall",),
}
"""Heading -> the values below it, by their outermost names."""


def value_tables() -> str:
    """A table for each section; ValueError unless every value is in one."""
    rows = [(path, code(_written(default)), meaning) for path, default, meaning in leaves(Values())]
    listed = sorted(name for names in SECTIONS.values() for name in names)
    if listed != sorted(field.name for field in dataclasses.fields(Values)):
        raise ValueError("the sections of tools/chart/tables.py do not have every value once")
    return "\n".join(
        f"### {title}\n"
        + table(
            ("value", "default", "meaning"),
            [(code(path), *rest) for name in names for path, *rest in rows if _outermost(path) == name],
        )
        for title, names in SECTIONS.items()
    )


def nvidia_table() -> str:
    """The table of the values of NVIDIA's chart."""
    rows = [(code(one.path), one.description()) for one in nvidia_values(NVIDIA_VALUES)]
    return table(("value there", "here"), rows)


VALUE_PARTS: Parts = {"values of the chart": value_tables, "values of the nvidia chart": nvidia_table}


def leaves(values: Any, before: str = "") -> Iterator[tuple[str, Any, str]]:
    """The path, the default and the meaning of every value; groups of values are not listed themselves."""
    hints = get_type_hints(type(values), include_extras=True)
    for field in dataclasses.fields(values):
        value, path = getattr(values, field.name), f"{before}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value, meaning_of(hints[field.name])


def _outermost(path: str) -> str:
    return path.partition(".")[0]


def _written(default: Any) -> str:
    return default if isinstance(default, str) and default else json.dumps(default)
