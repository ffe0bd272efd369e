"""Draws an explanation for people: the verdict, what is in the way, and what rules out each device."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuctl.cli.output import some_of
from gpuctl.explain.findings import FITS, Explanation, NodeReport, RequestReport

_MAX_NODES = 12
_MAX_FINDINGS = 24
_NAMES = 4


def picture(explanation: Explanation, *, wide: bool = False) -> RenderableType:
    """The whole answer; ``wide`` shows all findings, nodes and devices, else only the first are shown."""
    title = f"{explanation.kind} {explanation.namespace}/{explanation.name}: {explanation.summary}"
    parts: list[RenderableType] = [Text(title, style="bold")]
    for finding in explanation.findings if wide else explanation.findings[:_MAX_FINDINGS]:
        parts.append(Text(f"- {finding.message}"))
        if finding.remedy:
            parts.append(Text(f"  what helps: {finding.remedy}"))
    left = 0 if wide else len(explanation.findings) - _MAX_FINDINGS
    parts += [Text(f"and {left} more findings; -o wide shows all")] if left > 0 else []
    parts += [_request(report, wide=wide) for report in explanation.requests]
    if explanation.unread:
        parts.append(
            Text(f"not checked, because this user may not read them: {', '.join(explanation.unread)}")
        )
    return Group(*parts)


def _request(report: RequestReport, *, wide: bool) -> RenderableType:
    table = Table(
        title=f"claim {report.claim}, request {report.request}: wants {report.wants}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("node", no_wrap=True)
    table.add_column("devices", justify="right")
    table.add_column("ruled out by", no_wrap=True)
    table.add_column("because", overflow="fold")
    shown = report.nodes if wide else report.nodes[:_MAX_NODES]
    for node in shown:
        rows = _rows(node, None if wide else _NAMES)
        for number, row in enumerate(rows):
            last = number == len(rows) - 1
            table.add_row("" if number else node.node, *row, end_section=last)
    left = len(report.nodes) - len(shown)
    return Group(table, Text(f"and {left} more nodes; -o wide shows all")) if left > 0 else table


def _rows(node: NodeReport, most: int | None) -> list[tuple[str, str, str]]:
    rows = [("", "node", node.closed)] if node.closed else []
    rows += [("", "pool", problem) for problem in node.pools]
    rows += [
        (
            str(len(one.devices)),
            "-" if one.gate == FITS else one.gate,
            f"{one.reason} ({some_of(one.devices, most)})",
        )
        for one in node.outcomes
    ]
    return rows or [("0", "-", "no driver publishes devices for this node")]
