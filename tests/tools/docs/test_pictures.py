"""Pictures of the documentation are shown, have words for those who cannot see them, and fetch nothing."""

from tools.docs.pictures import FOLDER, ROOT


def test_every_picture_is_shown_on_a_page_with_words_in_its_place() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = "\n".join(page.read_text() for page in pages)

    assert [file.name for file in FOLDER.iterdir() if f"pictures/{file.name})" not in shown] == []
    assert "![](" not in shown
