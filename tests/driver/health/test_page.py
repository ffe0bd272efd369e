"""docs/health.md says of each XID and each taint what the driver makes of it."""

import re
from pathlib import Path

from driver.health.health_rules import EVICTING
from driver.health.remedies import BY_KEY, BY_VALUE
from driver.health.verdict import KEYS
from tests.gpus import XID_CLASSES, XIDS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "health.md").read_text()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def codes(text: str) -> set[int]:
    """The codes of a cell: numbers, and ``39 to 41``."""
    return {
        code
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", text)
        for code in range(int(first), int(last or first) + 1)
    }


def test_each_class_has_the_codes_of_the_table() -> None:
    rows = {cells(line)[0].strip("`"): cells(line)[1] for line in PAGE.splitlines() if line.startswith("| `")}
    shown = {word: codes(rows[word]) for word in XID_CLASSES}
    assert shown == {
        word: {code for code, xid in XIDS.items() if xid.xid_class == word} for word in XID_CLASSES
    }


def test_each_taint_is_explained_with_the_word_by_which_it_evicts() -> None:
    section = PAGE[PAGE.index("## Taints") : PAGE.index("## XIDs")]
    rows = [cells(line) for line in section.splitlines() if line.startswith("| `")]
    told = [(re.findall(r"`([a-z-]+)`", row[0])[0], row[1].strip("`")) for row in rows]
    keys = {key.removeprefix("gpu.nvidia.com/") for key in KEYS.values()}
    assert {key for key, _ in told} == keys
    words = {word: f"gpu.nvidia.com/{key}" for key, word in told if word}
    assert words == {word: KEYS[word] for word in EVICTING}


def test_each_remedy_is_in_the_row_of_its_taint() -> None:
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", PAGE)
    rows = [cells(line) for line in plain.splitlines() if line.startswith("| `")]
    missing = [
        f"{key} {value}: {remedy.todo}"
        for (key, value), remedy in {**{(key, ""): one for key, one in BY_KEY.items()}, **BY_VALUE}.items()
        if not any(
            row[0].startswith(f"`{key.removeprefix('gpu.nvidia.com/')}`")
            and f"`{value}`" * bool(value) in row[min(2, len(row) - 1)]
            and remedy.todo.lower() in row[-1].lower()
            for row in rows
        )
    ]
    assert missing == []
