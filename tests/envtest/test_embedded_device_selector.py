"""Selectors of device classes are judged as CEL would, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest.embedded.device_selector import CannotJudge, check_known, selects

DRIVER = "gpu.nvidia.com"
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "type": {"string": "gpu"},
    "index": {"int": 1},
    "migCapable": {"bool": True},
    "driverVersion": {"version": "570.0.0"},
    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
}
DOMAIN = f"device.attributes['{DRIVER}']"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"device.driver == '{DRIVER}'", True),
        ("device.driver == 'other'", False),
        (f"{DOMAIN}.type == 'gpu'", True),
        (f'{DOMAIN}.type == "mig"', False),
        (f"device.driver == '{DRIVER}' &&\n {DOMAIN}.type=='gpu' && {DOMAIN}.index == 1", True),
        (f"{DOMAIN}.migCapable == false", False),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:00'", True),
        (f"device.driver == 'other' && {DOMAIN}.missing == 1", False),
        (f"{DOMAIN}.missing == 1 && device.driver == 'other'", False),
    ],
)
def test_plain_comparisons_are_judged(expression: str, expected: bool) -> None:
    check_known(expression)
    assert selects(expression, DRIVER, ATTRIBUTES) is expected


@pytest.mark.parametrize(
    "expression",
    [
        f"{DOMAIN}.missing == 1",
        f"{DOMAIN}.type == 1",
        f"{DOMAIN}.index == true",
        f"{DOMAIN}.driverVersion == '570.0.0'",
    ],
)
def test_a_comparison_without_an_answer_is_refused(expression: str) -> None:
    with pytest.raises(CannotJudge):
        selects(expression, DRIVER, ATTRIBUTES)


@pytest.mark.parametrize(
    "expression",
    [
        f"{DOMAIN}.index > 0",
        f"{DOMAIN}.type == 'gpu' || true",
        f"!({DOMAIN}.type == 'gpu')",
        f"has({DOMAIN}.type)",
        "device.capacity['x'].memory.compareTo(quantity('1Gi')) > 0",
        "device.driver == 'a && b'",
        "device.driver == 'a\\x62'",
        "true",
        "",
    ],
)
def test_everything_else_is_refused_even_without_a_device(expression: str) -> None:
    with pytest.raises(CannotJudge):
        check_known(expression)
    with pytest.raises(CannotJudge):
        selects(expression, DRIVER, ATTRIBUTES)


def test_the_class_that_the_project_ships_is_judged() -> None:
    path = Path(__file__).resolve().parents[2] / "deviceclasses" / "gpu.yaml"
    (selector,) = yaml.safe_load(path.read_text())["spec"]["selectors"]
    expression = selector["cel"]["expression"]

    assert selects(expression, DRIVER, ATTRIBUTES)
    assert not selects(expression, DRIVER, {"type": {"string": "mig"}})
    assert not selects(expression, "other", ATTRIBUTES)
