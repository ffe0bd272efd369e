"""Golden vectors: cases with the oracle's answers, kept as data so that tests need no oracle."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.conformance.area import Answer, Case

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "vectors"


def vector_file(area: str) -> Path:
    """Where the vectors of an area lie."""
    return FOLDER / f"{area}.jsonl.gz"


def write_vectors(area: str, answered: Iterable[tuple[Case, Answer]]) -> int:
    """Write the vectors of an area anew, the same bytes for the same answers; how many there are."""
    lines = [json.dumps({"case": case, "answer": answer}, sort_keys=True) for case, answer in answered]
    data = "".join(f"{line}\n" for line in lines).encode()
    vector_file(area).write_bytes(gzip.compress(data, mtime=0))
    return len(lines)


def read_vectors(area: str) -> Iterator[tuple[Case, Answer]]:
    """Each case of an area with the oracle's answer."""
    with gzip.open(vector_file(area), "rt", encoding="utf-8") as file:
        for line in file:
            vector = json.loads(line)
            yield vector["case"], vector["answer"]
