"""A page becomes steps: its sh blocks, what they show, and how they have to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.page import Page, ScenarioWrong, parse_page, read_page


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


def test_only_the_first_text_block_is() -> None:
    (step,) = page(fence("sh", "echo a") + fence("text", "a") + fence("text", "b")).steps
    assert step.shown is not None
    assert (step.shown.line, step.shown.text) == (4, "a\n")


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


def test_blocks_of_other_languages_are_not_steps() -> None:
    found = page(fence("yaml", "a: 1") + fence("console", "$ ls") + fence("shell", "ls") + fence("", "ls"))
    assert found.steps == ()
    assert [(block.line, block.text) for block in found.quoted] == [(1, "a: 1\n")]


def test_blocks_in_lists_are_steps_without_their_indentation() -> None:
    (step,) = page("1. First:\n\n   ```sh\n   ls\n     pwd\n   ```\n").steps
    assert (step.line, step.script) == (3, "ls\n  pwd\n")


def test_what_is_shown_inside_of_a_block_is_no_block() -> None:
    (step,) = page("````sh\ncat <<E\n```sh\nls\n```\nE\n````\n").steps
    assert step.script == "cat <<E\n```sh\nls\n```\nE\n"


def test_front_matter_is_read_and_lines_keep_their_numbers() -> None:
    found = page("---\nscenario: deploy/x.yaml\n---\n" + fence("sh", "ls"))
    assert found.front == {"scenario": "deploy/x.yaml"}
    assert [step.line for step in found.steps] == [4]
    assert found.headings == ()


@pytest.mark.parametrize("front", ["a: [", "- a", "a: 1\n b: 2"])
def test_front_matter_that_is_no_mapping_is_told(front: str) -> None:
    with pytest.raises(ScenarioWrong, match="front matter"):
        page(f"---\n{front}\n---\n")


def test_a_line_without_an_end_is_no_front_matter() -> None:
    assert page("---\n# A\n").headings == ("A",)


def test_headings_are_known() -> None:
    assert page("# A `b`\n\n## C\n").headings == ("A `b`", "C")


@pytest.mark.parametrize("drawing", ["![x](pictures/x.svg)\n", fence("text", "┌──┐"), fence("", "+--+")])
def test_a_picture_comes_before_what_is_run(drawing: str) -> None:
    run = fence("sh", "ls")
    assert page(f"# A\n\n{drawing}\n{run}").has_picture
    assert not page(f"# A\n\n{run}\n# B\n\n{drawing}").has_picture


def test_a_page_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioWrong, match="cannot be read"):
        read_page(tmp_path / "README.md")
