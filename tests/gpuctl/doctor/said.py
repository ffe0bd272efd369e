"""What checks say about a cluster or a node of which parts are other than in a well one, a line for each."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.doctor.check import Check

Rows = Iterable[tuple[str, dict[str, Any]]]
"""The name of a check, and the parts that are other."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def said(checks: Mapping[str, Check[Any]], well: Any, rows: Rows) -> str:
    """Status, check and changed parts, message, details and way out of each row."""
    lines = []
    for name, parts in rows:
        found = checks[name].look(dataclasses.replace(well, **parts))
        words = " | ".join((found.message, *found.details))
        changed = f" ({', '.join(parts)})" if parts else ""
        way_out = f" -> {found.way_out}" if found.way_out else ""
        lines.append(_TIME.sub("TIME", f"{found.status} {name}{changed}: {words}{way_out}\n"))
    return "".join(lines)


def blamed(text: str) -> set[str]:
    """The checks that warn or fail in a row."""
    return set(re.findall(r"^(?:warn|fail) ([\w-]+)", text, re.MULTILINE))
