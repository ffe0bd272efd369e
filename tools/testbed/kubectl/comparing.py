"""Compares what kubectl prints on the real and on the embedded cluster.

What changes from run to run is replaced: ages, hashes, addresses, generated names. What the embedded cluster
leaves out on purpose is not compared.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.testbed.kubectl.left_out import without_left_out

_LETTER = "[bcdfghjklmnpqrstvwxz2456789]"
"""What generated names are made of. Go: apimachinery/pkg/util/rand."""
_AGE = r"(?:\d+y)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?"
_REPLACED = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r'(resourceVersion"?: ?|Resource Version: +)"?\d+"?', r'\1"VERSION"'),
    (r"https?://(?:127\.0\.0\.1|localhost|192\.0\.2\.\d+|\[::1\]):\d+", "SERVER"),
    (r"/(?:tmp|dev/shm)/\S+", "FILE"),
    (r"\beyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    # Names with the hash of a template, of their pods, and of revisions and pods of other controllers.
    (rf"-{_LETTER}{{8,10}}-{_LETTER}{{5}}\b", "-HASH"),
    (rf"((?:pod-template|controller-revision)-hash\"?[:=] ?\"?)(?:[a-z]+-)?{_LETTER}{{6,10}}\b", r"\1HASH"),
    (rf"(\b[a-z-]+)-(?=[a-z]*\d){_LETTER}{{8,10}}\b", r"\1-HASH"),
    (rf"-{_LETTER}{{5}}\b", "-HASH"),
    (r"\b(?:10\.\d+\.\d+\.\d+|198\.18\.\d+\.\d+|127\.0\.0\.1|192\.0\.2\.2)\b", "ADDRESS"),
    (r"\b80:3\d{4}/TCP", "80:PORT/TCP"),
    (r"\b(?:containerd|embedded)://[0-9a-f]{32,}", "CONTAINER"),
    (r"\bsha256:[0-9a-f]{64}\b|\bembedded://localhost/busybox:1", "IMAGE"),
    (r"^[WIE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", ""),
    (rf"(?<=[\s(])(?=\d){_AGE}(?=[\s)]|$)", "AGE"),
    # How often kubectl sees a rollout that goes on.
    (r"^Waiting for .* rollout to finish: .*\n", ""),
    # A description is indented as far as its longest title.
    (r"^ {20,}", " " * 20),
    (r"(?<=\S) {2,}", "  "),
    (r" +$", ""),
)
_PATTERNS = tuple((re.compile(pattern, re.MULTILINE), text) for pattern, text in _REPLACED)


@dataclass(frozen=True, slots=True)
class Answer:
    """What kubectl printed and its exit status, without what changes from run to run."""

    line: str
    text: str
    status: int


def unchanging(text: str) -> str:
    """The text with words in the place of what changes, and with two spaces between columns."""
    for pattern, word in _PATTERNS:
        text = pattern.sub(word, text)
    return text


def compared(answer: Answer) -> list[str]:
    """The lines of an answer that are compared, with its exit status."""
    lines = [*_laid_out(answer.text).rstrip().splitlines(), f"exit status {answer.status}"]
    return without_left_out(answer.line, lines)


def _laid_out(text: str) -> str:
    """JSON with a line for each value, without managedFields, which few objects have; other text as it is."""
    if not text.startswith("{"):
        return text
    try:
        content = json.loads(text)
    except ValueError:
        return text
    if isinstance(content.get("metadata"), dict):
        content["metadata"].pop("managedFields", None)
    return json.dumps(content, indent=1, sort_keys=True)


def differences(real: Sequence[Answer], ours: Sequence[Answer]) -> Iterator[str]:
    """For each command that is answered differently, the command and the lines that differ."""
    for theirs, here in zip(real, ours, strict=True):
        changed = difflib.unified_diff(compared(theirs), compared(here), n=0, lineterm="")
        lines = [line for line in changed if not line.startswith(("---", "+++", "@@"))]
        if lines:
            yield "\n".join([f"$ {theirs.line}", *lines])


def written(answers: Sequence[Answer]) -> str:
    """Answers as a text that ``read`` reads."""
    return "".join(
        f"$ {one.line}\n{one.text.rstrip()}\n" + (f"exit status {one.status}\n" if one.status else "")
        for one in answers
    )


def read(text: str) -> list[Answer]:
    """The answers of a text that ``written`` wrote."""
    found = []
    for block in f"\n{text}".split("\n$ ")[1:]:
        line, _, printed = block.partition("\n")
        ended = re.search(r"(?:^|\n)exit status (\d+)\s*$", printed)
        status = int(ended[1]) if ended else 0
        found.append(Answer(line, printed[: ended.start()] if ended else printed, status))
    return found
