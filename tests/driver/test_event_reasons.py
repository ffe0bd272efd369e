"""docs/events.md shows every reason that can be posted, and no other."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from driver.event_reasons import EventReason

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "events.md").read_text()


def row(reason: EventReason) -> str:
    """The line of the table that tells of a reason."""
    on = ", ".join(reason.on)
    return f"| `{reason.word}` | {on} | {reason.severity} | {reason.meaning} | {reason.way_out} |"


def test_the_page_has_a_line_for_each_reason_in_their_order() -> None:
    shown = [line for line in PAGE.splitlines() if line.startswith("| `")]
    wanted = [row(reason) for reason in EventReason]
    assert shown == wanted, "docs/events.md has to have these lines:\n" + "\n".join(wanted)


def test_a_word_and_a_type_stand_for_one_thing() -> None:
    named = Counter((reason.word, reason.severity) for reason in EventReason)
    assert set(named.values()) == {1}


def test_every_word_is_one_that_the_api_takes_and_every_object_one_that_events_are_posted_on() -> None:
    for reason in EventReason:
        assert re.fullmatch(r"[A-Z][A-Za-z]{2,127}", reason.word), reason
        assert set(reason.on) <= {"ResourceClaim", "Pod", "Node"}, reason
        assert reason.on, reason
        assert not re.search(r"[|\n]", reason.meaning + reason.way_out), "it has to fit into a cell"


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, anchor = target.partition("#")
        text = (DOCS / (file or "events.md")).read_text()
        headings = {
            re.sub(r"[^a-z0-9 -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        }
        assert not anchor or anchor in headings, target
