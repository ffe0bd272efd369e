"""Names the files that are made of dashboards and rules, with their texts; ``chart.generate`` writes them."""

from __future__ import annotations

from pathlib import Path

from monitoring.alerts_page import alerts_page
from monitoring.fleet import FLEET
from monitoring.grafana import text_of
from monitoring.node import NODE
from monitoring.tenants import TENANTS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "monitoring"
IN_CHART = ROOT / "deploy" / "chart" / "monitoring"
BOARDS = (FLEET, NODE, TENANTS)


def generated() -> dict[Path, str]:
    """The files by their paths; helm sees only what lies in the chart, so that has copies."""
    rules = {file.name: file.read_text() for file in sorted((FOLDER / "rules").glob("*.yaml"))}
    boards = {f"{board.uid}.json": text_of(board) for board in BOARDS}
    return {
        **{FOLDER / "dashboards" / name: text for name, text in boards.items()},
        **{IN_CHART / "dashboards" / name: text for name, text in boards.items()},
        **{IN_CHART / "rules" / name: text for name, text in rules.items()},
        ROOT / "docs" / "alerts.md": alerts_page(rules["alerts.yaml"]),
    }


def left_over(wanted: dict[Path, str]) -> list[Path]:
    """Files in the folders for made ones that are not among them."""
    folders = (FOLDER / "dashboards", IN_CHART)
    return [file for folder in folders for file in folder.rglob("*") if file.is_file() and file not in wanted]
