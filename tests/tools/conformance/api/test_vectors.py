"""The embedded API server answers HTTP requests as kube-apiserver did when the vectors were recorded."""

import pytest

from tools.conformance.api.area import replayed, written_cases
from tools.conformance.api.left_out import LEFT_OUT, differences, unequal
from tools.conformance.area import Answer, Case
from tools.conformance.oracle import read_vectors

Replayed = list[tuple[Case, Answer, Answer]]


@pytest.fixture(scope="module")
def answers() -> Replayed:
    return list(replayed(read_vectors("api")))


def test_requests_are_answered_as_kubernetes_does(answers: Replayed) -> None:
    different = [
        (case["name"], found) for case, theirs, ours in answers if (found := differences(case, theirs, ours))
    ]

    assert [case for case, _, _ in answers] == list(written_cases())
    assert different == []


def test_every_difference_on_purpose_is_still_there(answers: Replayed) -> None:
    hidden = {
        one.what
        for case, theirs, ours in answers
        for path, _, _ in unequal(theirs["answers"], ours["answers"])
        for one in LEFT_OUT
        if one.covers(case) and one.hides(path)
    }

    assert [one.what for one in LEFT_OUT if one.what not in hidden] == []
