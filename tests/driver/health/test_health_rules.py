"""The field ``health`` of the node configuration is read strictly, and its schema knows the same words."""

from typing import Any

import jsonschema
import pytest
import yaml

from driver.health.health_rules import SCHEMA
from tests.gpus import ConfigError, HealthRules, parse_config

VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def read(health: Any) -> HealthRules:
    return parse_config(yaml.safe_dump({"version": "v1", "health": health}), "test").health


def test_without_the_field_nothing_is_evicted_and_the_table_decides() -> None:
    assert parse_config("version: v1", "test").health == HealthRules()


@pytest.mark.parametrize("code", [pytest.param("94", id="text"), pytest.param(94, id="number")])
def test_codes_may_stand_with_and_without_quotes(code: str | int) -> None:
    found = read({"xids": {code: "needs-reset"}, "evict": ["needs-reset", "lost"]})
    assert found == HealthRules({94: "needs-reset"}, frozenset({"needs-reset", "lost"}))
    VALIDATOR.validate({"xids": {str(code): "needs-reset"}, "evict": ["needs-reset", "lost"]})


def test_it_is_for_the_nodes_of_all_pools() -> None:
    text = """
version: v1
pools: [{name: a, nodeSelector: {matchLabels: {a: b}}, rules: []}]
health: {evict: [memory]}
"""
    for labels in ({"a": "b"}, {}):
        assert parse_config(text, "test", labels).health.evict == {"memory"}


@pytest.mark.parametrize(
    "health",
    [
        [],
        {"xid": {}},
        {"xids": []},
        {"xids": {"abc": "ignore"}},
        {"xids": {"0": "ignore"}},
        {"xids": {"-1": "ignore"}},
        {"xids": {"94": "fatal"}},
        {"xids": {"94": ["ignore"]}},
        {"evict": "lost"},
        {"evict": ["xid"]},
        {"evict": ["unmonitored"]},
        {"evict": [["lost"]]},
    ],
)
def test_what_is_wrong_is_refused_with_its_path_and_does_not_fit_the_schema(health: Any) -> None:
    with pytest.raises(ConfigError, match="health"):
        read(health)
    assert not VALIDATOR.is_valid(health)


def test_a_code_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_config('{version: v1, health: {xids: {94: ignore, "94": contained}}}', "test")
