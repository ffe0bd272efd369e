"""Every reason is one that the API accepts, and fits into the table of docs/errors-and-events.md."""

import re
from collections import Counter

from tests.gpus import EventReason


def test_a_word_and_a_type_stand_for_one_thing() -> None:
    named = Counter((reason.word, reason.severity) for reason in EventReason)
    assert set(named.values()) == {1}


def test_every_word_is_one_that_the_api_takes_and_every_object_one_that_events_are_posted_on() -> None:
    for reason in EventReason:
        assert re.fullmatch(r"[A-Z][A-Za-z]{2,127}", reason.word), reason
        assert set(reason.on) <= {"ResourceClaim", "Pod", "Node"}, reason
        assert reason.on, reason
        assert not re.search(r"[|\n]", reason.meaning + reason.way_out), "it has to fit into a cell"
