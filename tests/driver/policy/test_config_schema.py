"""The schema of the node configuration takes what the driver takes, and knows its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from driver.errors import ConfigError
from driver.health.health_rules import SCHEMA as HEALTH
from driver.policy.config import parse_config, pool_schema, rule_schema

SAMPLES = sorted((Path(__file__).resolve().parents[3] / "deploy" / "examples" / "node-config").glob("*.yaml"))
RULE = jsonschema.Draft7Validator(rule_schema())
POOL = jsonschema.Draft7Validator(pool_schema())


def takes(rule: Any) -> bool:
    """Whether the driver takes it."""
    try:
        parse_config(yaml.safe_dump({"version": "v1", "rules": [rule]}), "test")
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda file: file.stem)
def test_the_rules_of_every_sample_fit(sample: Path) -> None:
    for rule in yaml.safe_load(sample.read_text())["rules"]:
        RULE.validate(rule)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda file: file.stem)
def test_what_every_sample_says_of_faults_fits(sample: Path) -> None:
    jsonschema.Draft7Validator(HEALTH).validate(yaml.safe_load(sample.read_text()).get("health", {}))


@pytest.mark.parametrize(
    "rule",
    [
        {"offer": "hidden", "when": "gpu.index == 0"},
        {"mig": False},
        {"mig": "dynamic"},
        {"mig": {"layout": {"1g.10gb": 2, "3g.40gb": 1}}},
        {"shared": {"strategy": "MPS", "shares": 4, "memory": {"step": "1Gi"}}},
        {"shared": {"strategy": "MPS", "memory": {"step": 1073741824}, "fractional": True}},
        {
            "shared": [{"strategy": "TimeSlicing", "shares": 2}, {"strategy": "MPS", "shares": 2}],
            "offer": "whole",
        },
    ],
)
def test_what_the_driver_takes_fits(rule: Any) -> None:
    assert takes(rule)
    RULE.validate(rule)


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"offer": "half"},
        {"mig": True},
        {"mig": {"layout": {"1g": 0}}},
        {"mig": {"dynamic": {}, "layout": "all-1g"}},
        {"shared": {"strategy": "Fair", "shares": 2}},
        {"shared": {"strategy": "MPS", "shares": 1}},
        {"shared": {"strategy": "MPS", "shares": 2, "fractional": "yes"}},
    ],
)
def test_what_does_not_fit_the_driver_refuses_too(rule: Any) -> None:
    assert not RULE.is_valid(rule)
    assert not takes(rule)


def test_a_pool_has_a_name_a_selector_and_rules() -> None:
    good = {"name": "a", "nodeSelector": {"matchLabels": {"a": "b"}}, "rules": [{"offer": "whole"}]}
    POOL.validate(good)
    changes: list[dict[str, Any]] = [{"nodeSelector": {}}, {"rules": [{"ofer": 1}]}, {"a": 1}]
    for change in changes:
        assert not POOL.is_valid({**good, **change})
    assert not POOL.is_valid({"rules": []})
