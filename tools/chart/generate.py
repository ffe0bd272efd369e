"""Generates the files of the chart that follow from other files, and the pages about values and alerts.

``python -m tools.chart.generate`` writes them; with ``--check`` it exits with 1 if one is missing or stale.
``python -m tools.testbed.chart`` writes the manifests, for which it needs helm.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from tools.chart.nvidia import NvidiaValue, nvidia_values, with_nvidia_values
from tools.chart.schema import meaning_of, schema_of
from tools.chart.values import Values

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
_ALERTS = CHART / "monitoring" / "rules" / "alerts.yaml"
_VALUES_FILE_HEAD = """\
# The values of the chart. docs/values.md has them as a table, and those of NVIDIA's chart that are taken.
# Made from tools/chart/values.py by python -m tools.chart.generate.
"""
_COMMENT_WIDTH = 110
_VALUES_PAGE_HEAD = """\
# Values of the chart

`helm show values deploy/chart` shows them as a file. `values.schema.json` says what each may be, and helm
refuses a name that is not here. Combinations that cannot work are refused with a sentence. This page is made
from `tools/chart/values.py` by `python -m tools.chart.generate`.

| value | default | meaning |
|---|---|---|
"""
_NVIDIA_HEAD = """
## Values of NVIDIA's chart

Whoever comes from NVIDIA's chart (`dra-driver-nvidia-gpu`) can keep the values that mean something here under
their names. The others are refused by name, so that nobody believes in a value that does nothing; those that
say what is so anyway are passed over.

| value there | here |
|---|---|
"""
_ALERTS_PAGE_HEAD = """\
# Alerts

What the alerts of `deploy/chart/monitoring/rules/alerts.yaml` mean, and what to do.
[monitoring.md](monitoring.md) says how Prometheus gets them.
This page is made from that file by `python -m tools.chart.generate`.

**critical**: pods fail or will soon. **warning**: somebody should look today. **info**: good to know.
"""
_ALERT_GROUPS = {
    "gpu-dra-sick": "Sick GPUs",
    "gpu-dra-driver": "The driver",
    "gpu-dra-memory": "Memory",
    "gpu-dra-capacity": "Capacity and waiting",
}


def _values_file(values: Any) -> str:
    """The text of values.yaml."""
    return (
        _VALUES_FILE_HEAD
        + "\n"
        + "\n".join("\n".join(part) + "\n" for part in _value_parts(values, 0)).rstrip("\n")
        + "\n"
    )


def _value_parts(values: Any, depth: int) -> list[list[str]]:
    """The lines of each field of a group of values."""
    hints = get_type_hints(type(values), include_extras=True)
    return [
        _value_lines(field.name, getattr(values, field.name), meaning_of(hints[field.name]), depth)
        for field in dataclasses.fields(values)
    ]


def _value_lines(name: str, value: Any, meaning: str, depth: int) -> list[str]:
    indent = "  " * depth
    lines = [f"{indent}# {line}" for line in textwrap.wrap(meaning, _COMMENT_WIDTH - len(indent) - 2)]
    if dataclasses.is_dataclass(value):
        inner = [line for part in _value_parts(value, depth + 1) for line in part]
        return [*lines, f"{indent}{name}:", *inner]
    if isinstance(value, dict | list) and value:
        text = yaml.safe_dump(value, sort_keys=False).rstrip("\n")
        return [*lines, f"{indent}{name}:", *(f"{indent}  {line}" for line in text.splitlines())]
    # JSON is YAML, and quotes an empty text; Python would write True.
    return [
        *lines,
        f"{indent}{name}: {json.dumps(value) if value in ('', [], {}) or isinstance(value, bool) else value}",
    ]


def _values_page(values: Any, theirs: list[NvidiaValue]) -> str:
    """The text of docs/values.md."""
    ours = "".join(
        f"| `{path}` | {_code(default)} | {meaning} |\n" for path, default, meaning in leaves(values)
    )
    return (
        _VALUES_PAGE_HEAD
        + ours
        + _NVIDIA_HEAD
        + "".join(f"| `{one.path}` | {one.description()} |\n" for one in theirs)
    )


def leaves(values: Any, before: str = "") -> Iterator[tuple[str, Any, str]]:
    """The path, the default and the meaning of every value; groups of values are not listed themselves."""
    hints = get_type_hints(type(values), include_extras=True)
    for field in dataclasses.fields(values):
        value, path = getattr(values, field.name), f"{before}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value, meaning_of(hints[field.name])


def _code(default: Any) -> str:
    return f"`{default if isinstance(default, str) and default else json.dumps(default)}`"


def _alerts_page(rules: str) -> str:
    """The text of docs/alerts.md, from the text of the rule file."""
    groups = yaml.safe_load(rules)["groups"]
    listed = "".join(
        f"| [{rule['alert']}](#{rule['alert'].lower()}) | {rule['labels']['severity']} | {_summary(rule)} |\n"
        for group in groups
        for rule in group["rules"]
    )
    parts = [_ALERTS_PAGE_HEAD, "\n| alert | severity | says |\n|---|---|---|\n", listed]
    for group in groups:
        parts.append(f"\n## {_ALERT_GROUPS[group['name']]}\n")
        parts += [_section(rule) for rule in group["rules"]]
    return "".join(parts)


def _section(rule: dict[str, Any]) -> str:
    said = rule["annotations"]
    waits = f" for {rule['for']}" if "for" in rule else ""
    needs = f"\nIt needs the metrics of {said['needs']} beside the driver's.\n" if "needs" in said else ""
    return (
        f"\n### {rule['alert']}\n{said['description']}\n\n**What to do:** {_plain(said['action'])}\n{needs}\n"
        f"It fires, as {rule['labels']['severity']}, when this is so{waits}:\n"
        f"```\n{rule['expr'].strip()}\n```\n"
    )


def _summary(rule: dict[str, Any]) -> str:
    return _plain(rule["annotations"]["summary"])


def _plain(template: str) -> str:
    """A sentence with words in place of the templates that Prometheus fills in."""
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), template)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", named)


def generated() -> dict[Path, str]:
    """The texts of the generated files, by path."""
    theirs: list[NvidiaValue] = nvidia_values(CHART / "nvidia-values.yaml")
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **with_nvidia_values(schema_of(Values), theirs),
    }
    return {
        CHART / "values.yaml": _values_file(Values()),
        CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
        ROOT / "docs" / "values.md": _values_page(Values(), theirs),
        ROOT / "docs" / "alerts.md": _alerts_page(_ALERTS.read_text()),
    }


def stale() -> list[Path]:
    """The files that are missing or differ."""
    return [file for file, text in generated().items() if not file.is_file() or file.read_text() != text]


def main() -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the chart's values, their schema and their page.")
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    if parser.parse_args().check:
        names = stale()
        for file in names:
            sys.stderr.write(f"{file.relative_to(ROOT)} is stale: run python -m tools.chart.generate\n")
        return 1 if names else 0
    for file, text in generated().items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
