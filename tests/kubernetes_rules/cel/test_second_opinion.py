"""cel-python, an interpreter that shares no code with ours, says the same of plain expressions."""

import celpy
import pytest
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from driver.policy.predicate import holds
from tests.gpus import ConfigError

GPU: dict[str, bool | int | str] = {
    "index": 3,
    "productName": "NVIDIA H100 80GB HBM3",
    "numaNode": 1,
    "migCapable": True,
    "memoryBytes": 85520809984,
}

EXPRESSIONS = (
    "gpu.index == 3 && gpu.migCapable",
    "gpu.memoryBytes > 9223372036854775807 - 1 || true",
    "gpu.productName.startsWith('NVIDIA H') && !gpu.productName.endsWith('SXM')",
    "gpu.productName.contains(\"80GB\") ? gpu.numaNode == 1 : false",
    "gpu.productName.matches('H[12]00 [0-9]+GB')",
    "has(gpu.numaNode) && gpu.numaNode == 1",
    "gpu.nothing == 1 || true",
    "gpu.nothing == 1",
    "[1, 2, 3].exists(x, x == gpu.index)",
    "[1, 2, 3].map(x, x * 2).filter(x, x > 2) == [4, 6]",
    "{'a': 1, 'b': 2}['b'] == 2",
    "gpu.index / (gpu.index - 3) == 1",
    "9223372036854775807 + gpu.index > 0",
    "'\\u0041\\t' == \"A\\t\"",
    "duration('90s') > duration('1m')",
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
