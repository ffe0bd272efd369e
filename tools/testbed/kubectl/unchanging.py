"""Replaces what changes from run to run in kubectl's output: ages, hashes, addresses, generated names."""

from __future__ import annotations

import re

_NAME_END = "[bcdfghjklmnpqrstvwxz2456789]"
_AGE = r"(?:\d+y)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?"
_REPLACED = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r'(resourceVersion"?: )"?\d+"?', r"\1VERSION"),
    (r"https?://(?:127\.0\.0\.1|localhost|192\.0\.2\.\d+|\[::1\]):\d+", "SERVER"),
    (r"/(?:tmp|dev/shm)/\S+", "FILE"),
    (r"\beyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    # Names with the hash of a template, of their pods, and of revisions and pods of other controllers.
    (rf"-{_NAME_END}{{8,10}}-{_NAME_END}{{5}}\b", "-HASH"),
    (rf"(\b[a-z-]+)-(?=[a-z]*\d){_NAME_END}{{8,10}}\b", r"\1-HASH"),
    (
        rf"((?:pod-template-hash|controller-revision-hash)\"?[:=] ?\"?)(?:[a-z]+-)?{_NAME_END}{{6,10}}\b",
        r"\1HASH",
    ),
    (r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"),
    (rf"(?<=[\s(])(?=\d){_AGE}(?=[\s)]|$)", "AGE"),
)
_PATTERNS = tuple((re.compile(pattern, re.MULTILINE), text) for pattern, text in _REPLACED)
_GAP = re.compile(r"(?<=\S) {2,}")
_END = re.compile(r" +$", re.MULTILINE)


def unchanging(text: str) -> str:
    """The text with words in the place of what changes, and with two spaces between columns."""
    for pattern, word in _PATTERNS:
        text = pattern.sub(word, text)
    return _END.sub("", _GAP.sub("  ", text))
