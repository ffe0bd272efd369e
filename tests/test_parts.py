"""The parts of the tests name files and tests that exist, and each test belongs to one part."""

from pathlib import Path

from tests.parts import LONGEST_FIRST, NEED_ROOT, QUICK_FLOWS, QUICK_FOLDERS, TAKE_LONG, is_quick

ROOT = Path(__file__).resolve().parents[1]


def test_what_is_named_exists() -> None:
    for named in (*QUICK_FOLDERS, *TAKE_LONG, *NEED_ROOT, *QUICK_FLOWS, *LONGEST_FIRST):
        path, _, name = named.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text() if name else (ROOT / path).exists(), named


def test_what_takes_long_or_needs_root_is_no_part_of_make_test() -> None:
    assert not any(is_quick(one if "::" in one else f"{one}::test_it") for one in (*TAKE_LONG, *NEED_ROOT))
    assert is_quick("tests/driver/test_event_reasons.py::test_it")
    assert not is_quick("tests/tools/chart/test_values.py::test_it")
