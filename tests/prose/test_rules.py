"""The rules of the documentation's prose find what they are for, and nothing in prose that keeps them."""

from __future__ import annotations

import pytest

from prose.__main__ import pages
from prose.rules import MOST_WORDS, findings

LONG = " ".join(f"word{number}" for number in range(MOST_WORDS - 1))


def told(page: str, *, is_history: bool = False) -> list[str]:
    """The findings of a page with their lines, as one reads them."""
    return [f"{one.line}: {one.what}" for one in findings(page, is_history=is_history)]


@pytest.mark.parametrize(
    ("page", "line", "words"),
    [
        ("# A page\n\nIt simply works.\n", 3, "filler"),
        ("A small\nand powerful tool.\n", 2, "'powerful': marketing"),
        ("It no longer waits.\n", 1, "history"),
        ("It waits. Now it runs.\n", 1, "history"),
        ("It doesn't wait.\n", 1, "contraction"),
        ("It\u2019s here.\n", 1, "contraction"),
        ("It waits for for ever.\n", 1, "the same word twice"),
        ("Slices, claims etc. are read.\n", 1, "name the things"),
        ("- a\n- the Nvidia driver\n", 2, "NVIDIA"),
        ("| a | b |\n|---|---|\n| c | by nvml |\n", 3, "NVML"),
        ("Each resource slice is read.\n", 1, "ResourceSlice"),
        ("Then the Kubelet calls.\n", 1, "kubelet"),
        ("It is cut by Mig.\n", 1, "MIG"),
        ("Neither does it wait.\n", 1, "begins with its end"),
        ("It runs. It waits. It\nends.\n", 1, "in a row begin with 'It'"),
        ("A mig-<profile> of it.\n", 1, "'<profile>' is taken for HTML"),
        ("A page.\n\n```\na\u200bb\n```\n", 4, "U+200B"),
        ("A\u00a0page.\n", 1, "U+00A0"),
        (f"One. Here {LONG} ends.\n", 1, f"a sentence of {MOST_WORDS + 1} words"),
    ],
)
def test_what_breaks_a_rule_is_told_with_its_line(page: str, line: int, words: str) -> None:
    (finding,) = told(page)
    assert finding.startswith(f"{line}: ")
    assert words in finding


@pytest.mark.parametrize(
    "page",
    [
        "`simply` and `nvidia.com/gpu` and `just` are code.\n",
        "```sh\nplease just simply\n```\n",
        "See [the driver](from-nvidia-driver.md) at https://docs.nvidia.com/mig.\n",
        "---\nscenario: please.yaml\n---\n# A page\n",
        "The kubelet calls, e.g. kubelet by kubelet, and gpuctl asks NVML of a vGPU.\n",
        "NVIDIA's driver knows it. Kubelet first, at the beginning of a sentence.\n",
        "The one. The other. The third.\n",
        f"One. Here {LONG}. There {LONG}.\n",
        "<!-- made by python -m lookup -->\n\nA line<br>and another.\n",
        "It lasts from 2 to 3 s. `a` waits. `b` waits. `c` waits.\n",
    ],
)
def test_what_keeps_the_rules_is_not_told(page: str) -> None:
    assert told(page) == []


def test_a_history_may_speak_of_before_and_of_nothing_else_more() -> None:
    assert told("It no longer waits.\n", is_history=True) == []
    assert len(told("It simply waits.\n", is_history=True)) == 1


def test_all_pages_are_looked_at() -> None:
    names = {"/".join(page.parts[-2:]) for page in pages()}
    assert {"docs/index.md", "tenants/README.md"} <= names
    assert {"README.md", "CHANGELOG.md"} <= {page.name for page in pages()}
