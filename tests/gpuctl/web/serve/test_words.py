"""What the page says in words reads as people expect it."""

from __future__ import annotations

import pytest

from driver.health.remedies import BY_KEY, BY_VALUE, Remedy
from gpuctl.explain.findings import ExplainedObject, Explanation, Verdict
from gpuctl.web.serve.rendering import percent, summary_words, with_commands


def test_what_stands_between_backticks_is_shown_as_code() -> None:
    assert with_commands("`gpuctl heal` says what helps") == "<code>gpuctl heal</code> says what helps"


def test_text_with_commands_is_escaped_in_and_around_them() -> None:
    assert with_commands("a <b> `c & d` `") == "a &lt;b&gt; <code>c &amp; d</code> `"


@pytest.mark.parametrize("remedy", dict.fromkeys([*BY_KEY.values(), *BY_VALUE.values()]), ids=str)
def test_no_remedy_shows_backticks(remedy: Remedy) -> None:
    assert "`" not in with_commands(str(remedy))


@pytest.mark.parametrize(
    ("part", "said"), [(0, "0 %"), (1e-9, "1 %"), (0.5, "50 %"), (0.999, "99 %"), (1, "100 %")]
)
def test_a_little_is_not_nothing_and_nearly_all_is_not_all(part: float, said: str) -> None:
    assert percent(part) == said


@pytest.mark.parametrize(
    ("verdict", "summary", "said"),
    [
        ("waits", "it waits", ""),
        ("waits", "it waits, and no node can ever serve it as it is", "no node can ever serve it as it is"),
        ("fits", "it would fit on node-a", "it would fit on node-a"),
    ],
)
def test_the_summary_does_not_repeat_the_verdict(verdict: Verdict, summary: str, said: str) -> None:
    assert summary_words(Explanation(ExplainedObject("Pod", "team", "train"), verdict, summary)) == said
