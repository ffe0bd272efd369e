"""A page fails at the first block that does not end, or print, as it says, and is told with its line."""

from pathlib import Path

import pytest

from tools.scenarios.page import parse_page
from tools.scenarios.places.place import Place
from tools.scenarios.running import run_page


@pytest.mark.parametrize(
    ("text", "line", "command", "reason", "output"),
    [
        (
            "# A\n\n```sh\necho so far\nls /there/is/none\necho more\n```\n",
            *(5, "ls /there/is/none", "it ended with 2, and 0 was expected", "so far"),
        ),
        (
            "```sh\necho a; echo b\n```\n\nThis prints:\n\n```text\na\nc\n```\n",
            *(7, "echo a; echo b\n", "it printed something else than is shown", "  a\n- c\n+ b"),
        ),
    ],
    ids=["ends", "prints"],
)
def test_a_block_that_does_not_do_as_it_says_is_told_with_the_line(
    tmp_path: Path, text: str, line: int, command: str, reason: str, output: str
) -> None:
    failure = run_page(parse_page(Path("README.md"), text), Place(None, (), tmp_path, {})).failure
    assert failure is not None
    assert (failure.line, failure.command, failure.reason) == (line, command, reason)
    assert failure.output.startswith(output)
