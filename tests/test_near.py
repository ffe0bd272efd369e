"""``make near`` runs the tests that mirror what git calls changed."""

from pathlib import Path

import pytest

from tests.near import ALWAYS, near

TREE = {
    "driver/kinds/taken.py": "",
    "tests/driver/kinds/test_taken.py": "",
    "driver/kinds/split.py": "",
    "tests/driver/kinds/test_split_once.py": "from driver.kinds.split import split",
    "tests/driver/kinds/test_split_twice.py": "from driver.kinds.split import again",
    "tests/driver/kinds/parts.py": "",
    "tests/eventually.py": "",
    "tests/test_parts.py": "",
    "docs/page.md": "",
}
KINDS = ("test_split_once", "test_split_twice", "test_taken")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        pytest.param("driver/kinds/taken.py", ("test_taken",), id="the test of its name"),
        pytest.param("driver/kinds/split.py", KINDS[:2], id="the tests that name it"),
        pytest.param("driver/kinds/gone.py", KINDS, id="all of the folder"),
        pytest.param("tests/driver/kinds/test_taken.py", ("test_taken",), id="a test"),
        pytest.param("tests/driver/kinds/parts.py", KINDS, id="a helper of tests"),
        pytest.param("tests/eventually.py", (), id="a helper of all tests"),
        pytest.param("docs/page.md", (), id="a page"),
    ],
)
def test_a_changed_file_has_the_tests_that_mirror_it(
    tree: Path, changed: str, tests: tuple[str, ...]
) -> None:
    assert near([changed], tree) == (*ALWAYS, *(f"tests/driver/kinds/{name}.py" for name in tests))


def test_a_test_of_two_changed_files_runs_once(tree: Path) -> None:
    assert near(["driver/kinds/taken.py", "tests/driver/kinds/test_taken.py"], tree)[2:] == (
        "tests/driver/kinds/test_taken.py",
    )


@pytest.mark.parametrize("changed", ["kubeletplugin/retire.py", "tests/kubeletplugin/claims/x.transcript"])
def test_the_stories_of_a_node_are_played_for_all_of_the_plugin(tree: Path, changed: str) -> None:
    assert near([changed], tree)[2:] == ("tests/kubeletplugin/test_transcripts.py",)
