"""Writes the tables of the documentation and the JSON schemas that follow from the code, or checks them.

``python -m tools.docs.lookup`` writes the tables between the marks in the pages of ``docs/``, and the schemas
into ``gpuctl/schemas``; with ``--check`` it exits with 1 if one is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from driver.process.log import configure
from tools.chart.tables import VALUE_PARTS
from tools.conformance.api import left_out_tables
from tools.docs.lookup import attributes, claim_fields, errors, flags, machine_fields, monitoring, node_fields
from tools.docs.lookup.marked import Parts, names, renewed
from tools.docs.lookup.schemas import schema_files

DOCS = Path(__file__).resolve().parents[3] / "docs"
PARTS: Parts = {
    "attributes": attributes.attribute_tables,
    "capacities": attributes.capacity_table,
    "fields of opaque configurations": claim_fields.field_tables,
    "alerts": monitoring.alert_tables,
    "checks of the doctor": flags.check_tables,
    "checks of verify": flags.verify_tables,
    "classes of xids": monitoring.xid_table,
    "errors": errors.error_table,
    "events": errors.event_table,
    "metrics": monitoring.metric_tables,
    "flags of processes": flags.process_tables,
    "commands of gpuctl": flags.gpuctl_tables,
    "fields of machine files": machine_fields.field_table,
    "instance types": machine_fields.instance_table,
    "fields of the node configuration": node_fields.field_table,
    "answers of the embedded cluster": left_out_tables.answer_table,
    "what the embedded cluster checks": left_out_tables.checked_table,
    **VALUE_PARTS,
}


def pages() -> dict[Path, str]:
    """The pages with such tables and their new texts; ValueError unless each table has exactly one place."""
    found = {page: page.read_text() for page in sorted(DOCS.glob("*.md"))}
    places = Counter(name for text in found.values() for name in names(text))
    wrong = {name for name in places.keys() | PARTS.keys() if places[name] != 1 or name not in PARTS}
    if wrong:
        raise ValueError(f"not in one place of docs/, or not made: {', '.join(sorted(wrong))}")
    return {page: renewed(text, PARTS) for page, text in found.items() if names(text)}


def main() -> int:
    """Write or check the pages; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Write the tables of the documentation that follow from the code."
    )
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    checks = parser.parse_args().check
    configure("warning")
    made = pages() | schema_files()
    stale = [(page, text) for page, text in made.items() if not page.exists() or page.read_text() != text]
    for page, text in stale:
        if checks:
            sys.stderr.write(f"{page.parent.name}/{page.name} is stale: run python -m tools.docs.lookup\n")
        else:
            page.write_text(text)
    return 1 if checks and stale else 0


if __name__ == "__main__":
    sys.exit(main())
