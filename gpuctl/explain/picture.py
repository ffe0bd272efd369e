"""Shows an explanation to people: the answer, whose end would help, and what rules out each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuctl.cli.output import some_of
from gpuctl.explain.findings import FITS, Explanation, Leaving, NodeReport, PolicyVictims, RequestReport

_MAX_NODES = 12
_MAX_FINDINGS = 24
_MAX_SETS = 1
_NAMES = 4
_WORDS = {"lower-priority": "lower priority", "movable": "movable", "any": "any"}
_KINDS = {"Pod": "pod", "ResourceClaim": "claim"}


def picture(told: Explanation, *, wide: bool = False) -> RenderableType:
    """The whole answer; ``wide`` shows all findings, nodes and devices, else only the first are shown."""
    about = told.object
    parts: list[RenderableType] = [
        Text(f"{_KINDS[about.kind]} {about.namespace}/{about.name}: {told.summary}", style="bold")
    ]
    for finding in told.findings if wide else told.findings[:_MAX_FINDINGS]:
        parts.append(Text(f"- {finding.message}"))
        if finding.remedy:
            parts.append(Text(f"  what helps: {finding.remedy}"))
    left = 0 if wide else len(told.findings) - _MAX_FINDINGS
    parts += [Text(f"and {left} more findings; -o wide shows all")] if left > 0 else []
    if told.unread:
        parts.append(Text(f"not checked, because this user may not read them: {', '.join(told.unread)}"))
    if told.policies:
        parts += _victims(told.policies, told.unread, wide=wide)
    return Group(*parts, *(_request(report, wide=wide) for report in told.requests))


def _victims(
    policies: Sequence[PolicyVictims], unread: Sequence[str], *, wide: bool
) -> Iterator[RenderableType]:
    """Whose end would make room: the best node under each policy; all nodes, and more words, if ``wide``."""
    heads = (
        "who may go",
        "node",
        "pod",
        "priority",
        *(("since", "owner") if wide else ()),
        "budget",
        "it would get",
    )
    table = _table("whose end would make room", *heads)
    notes = []
    for policy in policies:
        word = _WORDS[policy.policy]
        shown = policy.victims if wide else policy.victims[:_MAX_SETS]
        for number, one in enumerate(shown):
            gains = some_of([gain.rpartition("/")[2] for gain in one.gains], None if wide else _NAMES)
            gains += f"; a budget forbids {one.refused} now" if one.refused else ""
            for index, pod in enumerate(one.pods):
                table.add_row(
                    "" if number or index else word,
                    "" if index else one.node,
                    f"{pod.namespace}/{pod.name}",
                    str(pod.priority),
                    *((pod.since or "-", pod.owner or "-") if wide else ()),
                    _budget(pod, unread),
                    "" if index else gains,
                )
        if policy.why:
            notes.append(f"{word}: {policy.why}")
        if left := len(policy.victims) - len(shown):
            notes.append(f"{word}: and {left} more node{'s' * (left > 1)}; -o wide shows all")
        if any(not one.exact for one in policy.victims):
            notes.append(f"{word}: none can be left out, but a smaller set may exist")
    if table.row_count:
        yield table
    yield from map(Text, notes)


def _budget(pod: Leaving, unread: Sequence[str]) -> str:
    if "poddisruptionbudgets" in unread:
        return "?"
    return ", ".join(f"{one.name} allows {one.allows}" for one in pod.budgets) or "-"


def _request(report: RequestReport, *, wide: bool) -> RenderableType:
    title = f"claim {report.claim}, request {report.request}: wants {report.wants}"
    table = _table(title, "node", "devices", "ruled out by", "because")
    shown = report.nodes if wide else report.nodes[:_MAX_NODES]
    for node in shown:
        rows = list(_rows(node, wide=wide))
        for number, row in enumerate(rows):
            table.add_row("" if number else node.node, *row, end_section=number == len(rows) - 1)
    left = len(report.nodes) - len(shown)
    return Group(table, Text(f"and {left} more nodes; -o wide shows all")) if left > 0 else table


def _table(title: str, *heads: str) -> Table:
    """A table that folds what is too wide for the terminal."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, overflow="fold", justify="right" if head == "devices" else "left")
    return table


def _rows(node: NodeReport, *, wide: bool) -> Iterator[tuple[str, str, str]]:
    """What rules out the devices of a node; devices of other forms are a number, unless ``wide``."""
    if node.closed:
        yield "", "node", node.closed
    yield from (("", "pool", problem) for problem in node.pools)
    for one in node.outcomes if wide else [one for one in node.outcomes if not one.other_form]:
        gate = "-" if one.gate == FITS else one.gate
        names = "" if wide else f" ({some_of(one.devices, _NAMES)})"
        yield str(len(one.devices)), gate, f"{one.reason}{names}"
        for start in range(0, len(one.devices) if wide else 0, _NAMES):
            yield "", "", f"  {', '.join(one.devices[start : start + _NAMES])}"
    others = sum(len(one.devices) for one in node.outcomes if one.other_form)
    if others and not wide:
        yield str(others), "selector", "of other forms; -o wide says which"
    if not (node.closed or node.pools or node.outcomes):
        yield "0", "-", "no driver publishes devices for this node"
