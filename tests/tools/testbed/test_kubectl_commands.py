"""The list of kubectl commands is complete, and answers are compared without what changes from run to run."""

from __future__ import annotations

from tools.testbed.kubectl.comparing import Answer, compared, differences, read, unchanging, written
from tools.testbed.kubectl.running import ANSWERS, commands


def test_there_is_a_recorded_answer_to_each_command() -> None:
    assert [one.line for one in read(ANSWERS.read_text())] == [one.line for one in commands()]


def test_every_verb_of_kubectl_is_in_the_list() -> None:
    words = {word for one in commands() for word in one.line.split()}
    verbs = (
        "annotate api-resources api-versions apply auth autoscale cluster-info config cordon cp create debug "
        "delete describe diff drain edit events exec explain expose get label logs options patch plugin "
        "replace rollout run scale set taint top uncordon version wait"
    )
    assert set(verbs.split()) - words == set()
    assert len(commands()) >= 120


def test_what_changes_from_run_to_run_is_replaced() -> None:
    first = 'NAME                  AGE\nweb-6d4cf56db6-x7k2p   3m20s\n  resourceVersion: "17"\n'
    second = 'NAME               AGE\nweb-7f9b8c5d44-zzq9w   5s\n  resourceVersion: "2"\n'
    assert unchanging(first) == unchanging(second)
    assert unchanging("replicas: 3\n") != unchanging("replicas: 2\n")


def test_answers_are_read_as_they_were_written() -> None:
    given = [Answer("get pods", "NAME\nweb\n", 0), Answer("get none", "", 1)]
    found = read(written(given))
    assert [compared(one) for one in found] == [compared(one) for one in given]
    assert list(differences(given, found)) == []
    assert list(differences(given, [given[0], Answer("get none", "", 0)])) == [
        "$ get none\n-exit status 1\n+exit status 0"
    ]
