"""The list of kubectl commands is complete, and answers are compared without what changes from run to run."""

from __future__ import annotations

from tools.testbed.kubectl.comparing import read, unchanging
from tools.testbed.kubectl.running import ANSWERS, commands


def test_there_is_a_recorded_answer_to_each_command() -> None:
    assert [one.line for one in read(ANSWERS.read_text())] == [one.line for one in commands()]


def test_what_changes_from_run_to_run_is_replaced() -> None:
    first = 'NAME                  AGE\nweb-6d4cf56db6-x7k2p   3m20s\n  resourceVersion: "17"\n'
    second = 'NAME               AGE\nweb-7f9b8c5d44-zzq9w   5s\n  resourceVersion: "2"\n'
    assert unchanging(first) == unchanging(second)
    assert unchanging("replicas: 3\n") != unchanging("replicas: 2\n")
