"""Makes the files of the chart that follow from others, or checks that they are what it would make.

``python -m tools.chart.generate`` writes them; with ``--check`` it exits with 1 when one is missing or stale.
Manifests that take helm to make are written by ``chart.manifests``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.chart.alerts_page import alerts_page
from tools.chart.classes import FOLDER as CLASSES
from tools.chart.nvidia import NvidiaValue, nvidia_values, with_nvidia_values
from tools.chart.schema import schema_of
from tools.chart.values import Values
from tools.chart.values_file import values_file
from tools.chart.values_page import values_page

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
MONITORING = ROOT / "deploy" / "monitoring"
"""Rules and dashboards; helm sees only what lies in the chart, so that has copies."""


def generated() -> dict[Path, str]:
    """The files by their paths, with their texts."""
    theirs: list[NvidiaValue] = nvidia_values(CHART / "nvidia-values.yaml")
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **with_nvidia_values(schema_of(Values), theirs),
    }
    copies = {
        CHART / "deviceclasses" / file.relative_to(CLASSES): file.read_text()
        for file in CLASSES.rglob("*.yaml")
    }
    copies |= {
        CHART / "monitoring" / file.relative_to(MONITORING): file.read_text()
        for folder in ("rules", "dashboards")
        for file in (MONITORING / folder).iterdir()
    }
    return {
        CHART / "values.yaml": values_file(Values()),
        CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
        ROOT / "docs" / "values.md": values_page(Values(), theirs),
        ROOT / "docs" / "alerts.md": alerts_page((MONITORING / "rules" / "alerts.yaml").read_text()),
        **copies,
    }


def stale() -> list[Path]:
    """The files that are missing, differ, or have no source."""
    wanted = generated()
    folders = (CHART / "deviceclasses", CHART / "monitoring")
    left_over = [
        file for folder in folders for file in folder.rglob("*") if file.is_file() and file not in wanted
    ]
    return left_over + [
        file for file, text in wanted.items() if not file.is_file() or file.read_text() != text
    ]


def main() -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the chart's values, their schema and their page.")
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    if parser.parse_args().check:
        names = stale()
        for file in names:
            sys.stderr.write(f"{file.relative_to(ROOT)} is stale: run python -m tools.chart.generate\n")
        return 1 if names else 0
    for file in stale():
        if file in (texts := generated()):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(texts[file])
        else:
            file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
