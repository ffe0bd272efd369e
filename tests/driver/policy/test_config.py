"""The node configuration decides what is offered, and is refused with every error that is in it."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from driver.health.health_rules import SCHEMA as HEALTH
from driver.policy.config import pool_schema, rule_schema
from tests.gpus import (
    ConfigError,
    Gpu,
    GpuPolicy,
    MigOffer,
    NodeConfig,
    PciAddress,
    Rule,
    SharedOffer,
    load_config,
    parse_config,
    parse_file,
)

A100 = Gpu(PciAddress.parse("0000:07:00.0"), "GPU-a", 0, 0, product_name="NVIDIA A100-SXM4-40GB", numa_node=3)
SLICED = SharedOffer("TimeSlicing", 4)
SHARED = "shared: {strategy: TimeSlicing, shares: 4}"
T4 = Gpu(PciAddress.parse("0000:3b:00.0"), "GPU-t", 1, 1, product_name="Tesla T4")


def load(folder: Path, text: str) -> NodeConfig:
    (folder / "node.yaml").write_text(text)
    return load_config(folder / "node.yaml")


def test_the_first_rule_that_matches_decides_and_the_rest_is_whole(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        version: v1
        rules:
          - when: gpu.productName.startsWith("NVIDIA A100") && gpu.numaNode == 3
            offer: whole
          - when: gpu.productName.startsWith("NVIDIA")
            offer: hidden
        """,
    )

    assert config.policy_of(A100) == GpuPolicy("whole", MigOffer("static"))
    assert config.policy_of(T4) == GpuPolicy("whole", MigOffer("static"))
    assert NodeConfig(config.rules[1:]).policy_of(A100).form == "hidden"


def test_all_errors_come_together_with_their_paths(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(
            tmp_path,
            "{version: v2, colour: 1, rules: "
            "[{when: '1 +', offer: whole}, {offer: half, colour: red}, 7, {when: 3}, "
            "{offer: whole, mig: {layout: [1g, 7, 2x]}}, {mig: quantum}]}",
        )

    for part in (
        "version: must be v1",
        "colour: unknown field",
        "rules[0].when: the CEL expression '1 +' cannot be parsed",
        "rules[1].colour: unknown field",
        "rules[1].offer: must be one of whole, partitions, vgpu, passthrough, shared, hidden",
        "rules[2]: must be a mapping",
        "rules[3].when: must be a CEL expression in quotes",
        "rules[3]: must have offer, memoryLimits, mig, vgpu, passthrough or shared",
        "rules[4].mig.layout[1]: must be a profile",
        "rules[4].mig.layout[2]: must be a profile",
        "rules[4].offer: must not be whole with a layout",
        "rules[5].mig: must be off, static, dynamic",
    ):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "offer"),
    [
        ("mig: dynamic", GpuPolicy("whole", MigOffer("dynamic"))),
        ("mig: off", GpuPolicy("whole", MigOffer("off"))),
        ("offer: partitions", GpuPolicy("partitions", MigOffer("static"))),
        ("{offer: partitions, mig: dynamic}", GpuPolicy("partitions", MigOffer("dynamic"))),
        ("mig: {layout: all-1g}", GpuPolicy("partitions", MigOffer("layout", layout="all-1g"))),
        ("{offer: hidden, mig: {layout: all-1g}}", GpuPolicy("hidden", MigOffer("layout", layout="all-1g"))),
        ("mig: {layout: all-disabled}", GpuPolicy("whole", MigOffer("off"))),
        (SHARED, GpuPolicy("shared", shared=(SLICED,))),
        (f"{{offer: whole, {SHARED}}}", GpuPolicy("whole", shared=(SLICED,))),
        (f"{{mig: dynamic, {SHARED}}}", GpuPolicy("whole", MigOffer("dynamic"), (SLICED,))),
        (
            f"{{mig: {{layout: all-1g}}, {SHARED}}}",
            GpuPolicy("partitions", MigOffer("layout", layout="all-1g"), (SLICED,)),
        ),
    ],
)
def test_a_rule_says_a_form_or_its_mig_implies_it(tmp_path: Path, rule: str, offer: GpuPolicy) -> None:
    text = rule if rule.startswith("{") else f"{{{rule}}}"

    assert load(tmp_path, f"{{version: v1, rules: [{text}]}}").policy_of(T4) == offer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must be a mapping"),
        ("kind: Pod\n---\nkind: Job", r"is a Kubernetes manifest \(Pod, Job\), not a node configuration"),
        ("{version: v1, version: v1}", "the key version appears more than once"),
        ("{version: v1, rules: {}}", "rules: must be a list"),
        ("a: [", "is not YAML"),
        ("{version: v1, pools: {}}", "pools: must be a list"),
        ("{version: v2, pools: []}", "version: must be v1"),
        ("{version: v1, pool: [], pools: [{name: a, rules: 7}]}", "pool: unknown field"),
    ],
)
def test_other_documents_are_refused_whatever_the_node(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_file(text, "test").pool_of({})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the node configuration .*node\.yaml: No such file.*check --config"
    ):
        load_config(tmp_path / "node.yaml")


@pytest.mark.parametrize(
    ("when", "message"),
    [("gpu.numaNode == 1", "cannot be evaluated"), ("gpu.index", "must give true or false")],
)
def test_a_rule_that_cannot_be_judged_is_an_error_not_a_guess(when: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NodeConfig((Rule(when, GpuPolicy("hidden")),)).policy_of(T4)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("offer: whole, mig: {layout: all-1g}", "offer: must not be whole with a layout"),
        ("offer: partitions, mig: off", "offer: must not be partitions with mig: off"),
        ("offer: null", "offer: must be one of"),
        ("offer: [whole]", "offer: must be one of"),
        ("offer: shared", "rules[0].offer: must not be shared without the field shared"),
        (f"offer: shared, mig: dynamic, {SHARED}", "offer: must not be shared with dynamic MIG: set whole"),
        (f"offer: shared, mig: {{layout: all-1g}}, {SHARED}", "offer: must not be shared with a layout"),
        ("offer: whole, shared: {strategy: MPS, shares: 2, fractional: true}", "rules[0].shared: fractional"),
        ("mig: dynamic, shared: {strategy: MPS, shares: 2, fractional: true}", "rules[0].shared: fractional"),
        (
            "offer: partitions, shared: [{strategy: MPS, shares: 2, fractional: true}]",
            "rules[0].shared: fractional",
        ),
    ],
)
def test_forms_that_contradict_mig_or_sharing_are_refused(rule: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", "test")

    assert message in str(refused.value)
    assert "; " not in str(refused.value).split(" is wrong: ")[1]


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
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_file(pool(entry), "test").pool_of({"pool": "a"})


def test_the_second_of_two_pools_with_one_name_is_wrong() -> None:
    file = parse_file(pool(f"{{name: b, {SELECTOR}}}"), "test")

    assert file.pool_of({"pool": "a"}).name == "b"
    with pytest.raises(ConfigError, match=r"pools\[1\]\.name: another pool has the name b"):
        file.pool_of({"pool": "b"})


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
def test_every_sample_fits(sample: Path) -> None:
    said = yaml.safe_load(sample.read_text())
    for rule in said["rules"]:
        RULE.validate(rule)
    jsonschema.Draft7Validator(HEALTH).validate(said.get("health", {}))


TWO_WAYS = [{"strategy": "TimeSlicing", "shares": 2}, {"strategy": "MPS", "shares": 2}]


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"offer": "hidden", "when": "gpu.index == 0"}, True),
        ({"mig": False}, True),
        ({"mig": "dynamic"}, True),
        ({"mig": {"layout": {"1g.10gb": 2, "3g.40gb": 1}}}, True),
        ({"shared": {"strategy": "MPS", "shares": 4, "memory": {"step": "1Gi"}}}, True),
        ({"shared": {"strategy": "MPS", "memory": {"step": 1073741824}, "fractional": True}}, True),
        ({"shared": TWO_WAYS, "offer": "whole"}, True),
        ({}, False),
        ({"offer": "half"}, False),
        ({"mig": True}, False),
        ({"mig": {"dynamic": {}, "layout": "all-1g"}}, False),
        ({"shared": {"strategy": "Fair", "shares": 2}}, False),
        ({"shared": {"strategy": "MPS", "shares": 1}}, False),
        ({"shared": {"strategy": "MPS", "shares": 2, "fractional": "yes"}}, False),
    ],
)
def test_what_fits_the_driver_takes_and_nothing_else(rule: Any, fits: bool) -> None:
    assert (RULE.is_valid(rule), takes(rule)) == (fits, fits)


def test_a_pool_has_a_name_a_selector_and_rules() -> None:
    good = {"name": "a", "nodeSelector": {"matchLabels": {"a": "b"}}, "rules": [{"offer": "whole"}]}
    POOL.validate(good)
    changes: list[dict[str, Any]] = [{"nodeSelector": {}}, {"rules": [{"ofer": 1}]}, {"a": 1}]
    for change in changes:
        assert not POOL.is_valid({**good, **change})
    assert not POOL.is_valid({"rules": []})
