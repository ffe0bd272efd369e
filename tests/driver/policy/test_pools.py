"""Of a node configuration with pools the first that takes a node in decides; a wrong one harms no other."""

from __future__ import annotations

import pytest

from driver.errors import ConfigError
from driver.policy.config import parse_config, parse_file

POOLS = """
version: v1
pools:
  - name: first
    nodeSelector: {matchLabels: {pool: a}, matchExpressions: [{key: gpu, operator: NotIn, values: [t4]}]}
    rules: [{offer: partitions}]
  - name: second
    nodeSelector: {matchLabels: {pool: a}}
    rules: [{offer: hidden}]
  - name: third
    nodeSelector: {matchExpressions: [{key: bare, operator: Exists}]}
rules: [{offer: whole}]
"""


@pytest.mark.parametrize(
    ("labels", "forms"),
    [
        ({"pool": "a"}, ["partitions"]),
        ({"pool": "a", "gpu": "t4"}, ["hidden"]),
        ({"bare": ""}, []),
        ({"pool": "b"}, ["whole"]),
        ({}, ["whole"]),
    ],
)
def test_the_first_pool_that_takes_the_node_in_decides(labels: dict[str, str], forms: list[str]) -> None:
    assert [rule.policy.form for rule in parse_config(POOLS, "test", labels).rules] == forms


def test_without_labels_a_file_with_pools_says_nothing() -> None:
    with pytest.raises(ConfigError, match=r"has pools of nodes, but the node's labels are not known"):
        parse_config(POOLS, "test")


def pool(text: str, others: str = "[{offer: whole}]") -> str:
    """A file with one pool, before one that takes nodes of the pool b."""
    good = "{name: b, nodeSelector: {matchLabels: {pool: b}}, rules: [{offer: hidden}]}"
    return f"{{version: v1, pools: [{text}, {good}], rules: {others}}}"


SELECTOR = "nodeSelector: {matchLabels: {pool: a}}"
WRONG_RULES = f"{{name: a, {SELECTOR}, rules: [{{offer: half}}]}}"
WRONG_SELECTOR = "{name: a, nodeSelector: {matchLabels: {pool: 7}}}"


def test_wrong_rules_concern_the_nodes_of_their_pool_alone() -> None:
    file = parse_file(pool(WRONG_RULES), "test")

    with pytest.raises(
        ConfigError, match=r"^the pool a of the node configuration test .*pools\[0\]\.rules\[0\]\.offer"
    ):
        file.pool_of({"pool": "a"})
    assert file.pool_of({"pool": "b"}).name == "b"
    assert file.pool_of({}).name == ""
    assert [*file.wrong_elsewhere({"pool": "a"})] == []
    [told] = file.wrong_elsewhere({"pool": "b"})
    assert "the pool a of the node configuration test is wrong: pools[0].rules[0].offer" in told


def test_wrong_rules_of_all_other_nodes_concern_these_alone() -> None:
    file = parse_file(pool(f"{{name: a, {SELECTOR}}}", "[{offer: half}]"), "test")

    assert file.pool_of({"pool": "a"}).name == "a"
    with pytest.raises(ConfigError, match=r"^the node configuration test is wrong: rules\[0\]\.offer"):
        file.pool_of({})


def test_a_pool_with_a_wrong_selector_may_mean_any_node_that_none_before_it_takes() -> None:
    after = parse_file(pool(WRONG_SELECTOR), "test")
    with pytest.raises(ConfigError, match="the pool a of"):
        after.pool_of({"pool": "b"})
    good = f"{{name: z, {SELECTOR}}}"
    before = parse_file(f"{{version: v1, pools: [{good}, {WRONG_SELECTOR}]}}", "test")
    assert before.pool_of({"pool": "a"}).name == "z"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("7", "pools[0]: must be a mapping"),
        (f"{{{SELECTOR}}}", "pools[0].name: must be a string"),
        ("{name: a, nodeSelector: {}}", "pools[0].nodeSelector: must be a mapping with matchLabels"),
        (f"{{name: a, {SELECTOR}, colour: 1}}", "pools[0].colour: unknown field"),
        (f"{{name: a, {SELECTOR}, rules: {{}}}}", "pools[0].rules: must be a list"),
        ("{name: a, nodeSelector: {matchLabels: [a]}}", "nodeSelector.matchLabels: must be a mapping"),
        ("{name: a, nodeSelector: {matchLabels: {a b: c}}}", "'a b' is no label key"),
        (
            "{name: a, nodeSelector: {matchLabels: {a: true}}}",
            "matchLabels.a: must be a label's value, in quotes",
        ),
        ("{name: a, nodeSelector: {matchExpressions: {}, a: b}}", "must be a mapping with"),
        ("{name: a, nodeSelector: {matchExpressions: [7]}}", "matchExpressions[0]: must be a mapping"),
        (
            "{name: a, nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}",
            "operator: must be",
        ),
        ("{name: a, nodeSelector: {matchExpressions: [{key: a, operator: In}]}}", "values: In needs some"),
        ("{name: a, nodeSelector: {matchExpressions: [{key: a, operator: In, values: [1]}]}}", "in quotes"),
        (
            "{name: a, nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}",
            "values: Exists takes none",
        ),
        (
            "{name: a, nodeSelector: {matchExpressions: [{key: a, operator: Exists, not: b}]}}",
            "not: unknown field",
        ),
    ],
)
def test_what_is_wrong_with_a_pool_is_told_with_its_path(entry: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_file(pool(entry), "test").pool_of({"pool": "a"})

    assert message in str(refused.value)


def test_the_second_of_two_pools_with_one_name_is_wrong() -> None:
    file = parse_file(pool(f"{{name: b, {SELECTOR}}}"), "test")

    assert file.pool_of({"pool": "a"}).name == "b"
    with pytest.raises(ConfigError, match=r"pools\[1\]\.name: another pool has the name b"):
        file.pool_of({"pool": "b"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{version: v1, pools: {}}", "pools: must be a list"),
        ("{version: v2, pools: []}", "version: must be v1"),
        (f"{{version: v1, pool: [], pools: [{WRONG_RULES}]}}", "pool: unknown field"),
    ],
)
def test_what_concerns_every_node_refuses_the_file(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_file(text, "test")
