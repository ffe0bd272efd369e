"""Links are followed as a process would whose root is another folder: none leads out of it."""

from pathlib import Path

import pytest

from driver.roots.root import below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a file, beside a file that no link may lead to."""
    (tmp_path / "outside").write_text("of this container")
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/file").write_text("of the root")
    return root


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("usr/lib/link", "file"),
        ("link", "usr/lib/file"),
        ("link", "/usr/lib/file"),
        ("usr/link", "../../../../usr/lib/./file"),
        ("usr/link", "/../../usr/lib/file"),
    ],
)
def test_a_link_leads_to_the_file_below_the_root(root: Path, link: str, target: str) -> None:
    (root / link).symlink_to(target)

    assert below(root, link) == root / "usr/lib/file"


def test_links_to_folders_and_links_to_links_are_followed(root: Path) -> None:
    (root / "lib").symlink_to("/usr/lib")
    (root / "first").symlink_to("/second")
    (root / "second").symlink_to("lib/file")

    assert below(root, "/lib/file") == below(root, "first") == root / "usr/lib/file"


def test_an_absolute_link_never_means_a_file_of_this_process(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    (root / "up").symlink_to("../outside")

    assert below(root, "link") is None
    assert below(root, "up") is None


def test_what_is_missing_or_leads_in_a_circle_is_nothing(root: Path) -> None:
    (root / "circle").symlink_to("circle")
    (root / "nowhere").symlink_to("/usr/lib/gone")

    assert [below(root, path) for path in ("gone", "usr/lib/file/in", "circle", "nowhere")] == [None] * 4


def test_the_root_itself_and_this_machines_root(root: Path) -> None:
    assert below(root, "/") == root
    assert below(Path("/"), str(root / "usr")) == root / "usr"
