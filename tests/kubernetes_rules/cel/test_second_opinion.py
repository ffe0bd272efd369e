"""cel-python, an interpreter that shares no code with ours, says the same of plain expressions."""

from __future__ import annotations

import celpy
import pytest
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from driver.errors import ConfigError
from driver.policy.predicate import holds

GPU: dict[str, bool | int | str] = {
    "index": 3,
    "productName": "NVIDIA H100 80GB HBM3",
    "numaNode": 1,
    "migCapable": True,
    "memoryBytes": 85520809984,
}

EXPRESSIONS = (
    "gpu.index == 3 && gpu.migCapable",
    "gpu.index in [0, 1, 2]",
    "gpu.index % 2 == 1",
    "-gpu.index + 4 == 1",
    "gpu.memoryBytes / 1073741824 >= 79",
    "gpu.memoryBytes > 9223372036854775807 - 1 || true",
    "gpu.productName.startsWith('NVIDIA H') && !gpu.productName.endsWith('SXM')",
    "gpu.productName.contains(\"80GB\") ? gpu.numaNode == 1 : false",
    "gpu.productName.matches('H[12]00 [0-9]+GB')",
    "size(gpu.productName) == 21",
    "has(gpu.numaNode) && gpu.numaNode == 1",
    "has(gpu.pcieRoot) || gpu.index < 2",
    "gpu.nothing == 1 || true",
    "gpu.nothing == 1 && false",
    "gpu.nothing == 1",
    "[1, 2, 3].exists(x, x == gpu.index)",
    "[1, 2, 3].all(x, x < gpu.index)",
    "[1, 2, 3].exists_one(x, x > 2)",
    "[1, 2, 3].map(x, x * 2).filter(x, x > 2) == [4, 6]",
    "{'a': 1, 'b': 2}['b'] == 2",
    "'a' in {'a': 1}",
    "gpu.index / (gpu.index - 3) == 1",
    "9223372036854775807 + gpu.index > 0",
    "int('12') + gpu.index == 15",
    "string(gpu.index) == '3'",
    "gpu['productName'] != 'x'",
    "(gpu.index > 2) == true",
    "'\\u0041\\t' == \"A\\t\"",
    "r'\\d' == '\\\\d'",
    "duration('90s') > duration('1m')",
    "timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-02T00:00:00Z')",
)  # fmt: skip


def theirs(expression: str) -> bool | None:
    environment = celpy.Environment(runner_class=celpy.InterpretedRunner)
    try:
        return bool(environment.program(environment.compile(expression)).evaluate({"gpu": json_to_cel(GPU)}))
    except CELEvalError:
        return None


def ours(expression: str) -> bool | None:
    try:
        return holds(expression, "gpu", GPU)
    except ConfigError:
        return None


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_both_say_the_same(expression: str) -> None:
    assert ours(expression) == theirs(expression)
