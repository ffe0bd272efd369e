"""What every form of a GPU says of it: only what an attribute can hold."""

import pytest

from driver.kinds.gpu_attributes import attribute_text, known, semantic_version
from tests.gpus import Version


@pytest.mark.parametrize(
    ("printed", "published"),
    [
        ("550.163.01", "550.163.1"),
        ("12.4", "12.4.0"),
        ("9", "9.0.0"),
        ("580.95.05-grid", "580.95.5-grid"),
        ("580.95.05-01", None),
        ("1.2.3.4", None),
        ("unknown", None),
        ("", None),
        (None, None),
        ("1.2." + "9" * 64, None),
    ],
)
def test_versions_become_semantic_versions(printed: str | None, published: str | None) -> None:
    assert semantic_version(printed) == (None if published is None else Version(published))


@pytest.mark.parametrize(
    ("text", "held"), [("x" * 64, "x" * 64), ("x" * 65, None), ("ü" * 33, None), ("", None), (None, None)]
)
def test_a_text_is_held_when_it_has_1_to_64_bytes(text: str | None, held: str | None) -> None:
    assert attribute_text(text) == held


def test_what_is_not_known_is_left_out_and_false_is_known() -> None:
    assert list(known({"b": False, "c": None, "a": 0}).items()) == [("a", 0), ("b", False)]
