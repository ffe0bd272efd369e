"""A page becomes steps: its sh blocks, what they show, and how they have to end."""

from pathlib import Path

import pytest

from tools.scenarios.page import Page, parse_page

ECHO, SHOWN = "```sh\necho a\n```\n", "```text\na\n```\n"


def page(text: str) -> Page:
    return parse_page(Path("docs/page.md"), text)


def test_sh_blocks_are_steps_in_their_order_that_end_and_are_repeated_as_they_say() -> None:
    text = f"```sh\ncd x\nls\n```\nprose\n\n```sh exits=3\nexit 3\n```\n```sh until-shown\nls\n```\n{SHOWN}"
    steps = page(text).steps
    assert [(one.line, one.script, one.exits, one.until_shown) for one in steps] == [
        (1, "cd x\nls\n", 0, False),
        (7, "exit 3\n", 3, False),
        (10, "ls\n", 0, True),
    ]


@pytest.mark.parametrize(
    ("between", "shown"),
    [
        *[(text, "a\n") for text in ("", "\n\n", "This prints:\n", "\nThis prints:\n\n")],
        *[(text, None) for text in ("Other text.\n", "Two lines\nof prose:\n", "One:\n\nTwo:\n", "# A\n")],
    ],
)
def test_a_text_block_right_after_one_is_what_it_printed(between: str, shown: str | None) -> None:
    (step,) = page(f"{ECHO}{between}{SHOWN}").steps
    assert (step.shown and step.shown.text) == shown
