"""Every library's licence comes along: its text, and what the library calls it."""

from pathlib import Path

import pytest

from deploy.image.bill import gather_licenses, license_of
from tests.deploy.image.installed import found, install


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("License-Expression: MIT\nLicense: something else", "MIT"),
        ("License: BSD", "BSD"),
        ("License: Permission is hereby granted\n        to whoever\n", None),
        (
            f"License: {'all of the words ' * 9}\nClassifier: License :: OSI Approved :: MIT License",
            "MIT License",
        ),
        ("Classifier: Topic :: Text", None),
    ],
    ids=["expression", "words", "text", "classifier", "nothing"],
)
def test_a_licence_is_named_as_the_library_names_it(tmp_path: Path, fields: str, named: str | None) -> None:
    install(tmp_path, "lib", "1", fields)
    [library] = found(tmp_path)
    assert license_of(library) == named


def test_texts_are_copied_for_libraries_and_modules(tmp_path: Path) -> None:
    files = {"licenses/LICENSE": "a", "COPYING.md": "b", "top_level.txt": "c"}
    install(tmp_path / "site", "lib", "1", "License: MIT", files)
    install(tmp_path / "site", "silent", "1")
    module = tmp_path / "go" / "example.com" / "module"
    module.mkdir(parents=True)
    (module / "LICENSE").write_text("d")

    named = gather_licenses(found(tmp_path / "site"), tmp_path / "go", tmp_path / "out")

    assert named == {"lib": "MIT"}
    copied = {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert copied == {"python/lib/LICENSE", "python/lib/COPYING.md", "go/example.com/module/LICENSE"}
