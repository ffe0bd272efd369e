"""A page becomes steps: its sh blocks, what they show, and how they have to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.page import Page, ScenarioWrong, parse_page


def page(text: str) -> Page:
    return parse_page(Path("docs/page.md"), text)


def fence(info: str, *lines: str) -> str:
    return "\n".join([f"```{info}", *lines, "```", ""])


def test_sh_blocks_are_steps_in_their_order() -> None:
    steps = page(fence("sh", "cd x", "ls") + "prose\n\n" + fence("sh", "pwd")).steps
    assert [(step.line, step.script, step.exits, step.shown) for step in steps] == [
        (1, "cd x\nls\n", 0, None),
        (7, "pwd\n", 0, None),
    ]


@pytest.mark.parametrize("between", ["", "\n\n", "This prints:\n", "\nThis prints:\n\n"])
def test_a_text_block_after_one_is_what_it_printed(between: str) -> None:
    (step,) = page(fence("sh", "echo a") + between + fence("text", "a")).steps
    assert step.shown is not None
    assert step.shown.text == "a\n"


@pytest.mark.parametrize(
    "between", ["Now something else.\n", "Two lines\nof prose:\n", "One:\n\nTwo:\n", "# A\n"]
)
def test_a_text_block_further_on_is_not(between: str) -> None:
    (step,) = page(fence("sh", "echo a") + between + fence("text", "a")).steps
    assert step.shown is None


def test_the_info_string_says_how_it_ends_and_whether_it_is_repeated() -> None:
    first, second = page(
        fence("sh exits=3", "exit 3") + fence("sh until-shown", "ls") + fence("text", "a")
    ).steps
    assert (first.exits, first.until_shown) == (3, False)
    assert (second.exits, second.until_shown) == (0, True)


@pytest.mark.parametrize("info", ["sh exits=x", "sh wait", "sh until-shown"])
def test_a_wrong_info_string_is_told_with_its_line(info: str) -> None:
    with pytest.raises(ScenarioWrong, match=r"page\.md:3: "):
        page("# A\n\n" + fence(info, "ls"))
