"""Converts Markdown of GitHub's dialect to that of Python-Markdown.

The pages are written for GitHub. There a list or a table may follow a line of prose directly, and a list
within a list is indented by two or three blanks. Python-Markdown needs an empty line before it, and four
blanks.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

_MARKER = re.compile(r"(?P<before> *)(?P<marker>[-*+]|\d+[.)])(?P<after> {1,4}|$)")
_CODE = re.compile(r"`[^`]+`")
_INDENT = 4
_GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_LISTS = ("bullet_list", "ordered_list")
_APART = (*_LISTS, "table", "fence", "blockquote")


def as_python_markdown(text: str) -> str:
    """The same text with the empty lines, indentation and names of languages that Python-Markdown needs."""
    return "\n".join(_blocks(text.split("\n"), within=False))


def _blocks(lines: list[str], *, within: bool) -> list[str]:
    """The lines of a page, or of an item ``within`` a list, where a list needs no empty line before it."""
    written: list[str] = []
    at = 0
    for node in SyntaxTreeNode(_GITHUB.parse("\n".join(lines))).children:
        if node.map is None or node.type not in _APART:
            continue
        start, end = node.map
        written += lines[at:start]
        if written and written[-1].strip() and not (within and node.type in _LISTS):
            written.append("")
        written += _block(node, lines[start:end])
        at = end
        if at < len(lines) and lines[at].strip():
            written.append("")
    return written + lines[at:]


def _block(node: SyntaxTreeNode, lines: list[str]) -> list[str]:
    if node.type in _LISTS:
        first = node.map[0] if node.map else 0
        places = [item.map for item in node.children if item.map]
        return _items([lines[start - first : end - first] for start, end in places])
    # GitHub needs a backslash before a "|" in code within a table; Python-Markdown would show it.
    if node.type == "table":
        return [_CODE.sub(lambda code: code.group().replace(r"\|", "|"), line) for line in lines]
    # Only the language stays of the info string: "sh exits=1" is not a language.
    if node.type == "fence":
        words = node.info.split()
        return [
            lines[0][: lines[0].index(node.markup)] + node.markup + (words[0] if words else ""),
            *lines[1:],
        ]
    return lines


def _items(items: list[list[str]]) -> list[str]:
    """The items of a list, with an empty line between them from the first on that contains one."""
    written: list[str] = []
    for item in map(_item, items):
        if "" in written and written[-1]:
            written.append("")
        written += item
    return written


def _item(lines: list[str]) -> list[str]:
    """An item of a list, with all lines but the first indented by four blanks."""
    found = _MARKER.match(lines[0])
    if found is None:
        return lines
    inner = [lines[0][found.end() :], *(_less(line, found.end()) for line in lines[1:])]
    first, *rest = _blocks(inner, within=True)
    marker = found["marker"].replace(")", ".")
    return [
        f"{marker:<{_INDENT - 1}} {first}",
        *(f"{' ' * _INDENT}{line}" if line.strip() else "" for line in rest),
    ]


def _less(line: str, blanks: int) -> str:
    """The line without up to ``blanks`` of its leading blanks."""
    return line[min(blanks, len(line) - len(line.lstrip(" "))) :]
