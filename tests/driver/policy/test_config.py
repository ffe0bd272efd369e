"""The node configuration decides what is offered, and is refused with every error that is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.devices.gpu_policy import GpuPolicy, MigOffer, SharedOffer
from driver.errors import ConfigError
from driver.hardware.gpu import Gpu
from driver.nvml.pci_address import PciAddress
from driver.policy.config import load_config, parse_config
from driver.policy.rules import NodeConfig, Rule

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
        (
            "{offer: hidden, mig: {layout: all-1g}}",
            GpuPolicy("hidden", MigOffer("layout", layout="all-1g")),
        ),
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
    ("rule", "message"),
    [
        ("offer: whole, mig: {layout: all-1g}", "offer: must not be whole with a layout"),
        ("offer: partitions, mig: off", "offer: must not be partitions with mig: off"),
        ("offer: partitions, mig: {layout: all-disabled}", "must not be partitions with mig: off"),
        ("offer: null", "offer: must be one of"),
        ("offer: [whole]", "offer: must be one of"),
        ("mig: null", "mig: must be off"),
    ],
)
def test_forms_that_contradict_mig_are_refused(tmp_path: Path, rule: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, f"{{version: v1, rules: [{{{rule}}}]}}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must be a mapping"),
        ("kind: Pod\n---\nkind: Job", r"is a Kubernetes manifest \(Pod, Job\), not a node configuration"),
        ("{version: v1, version: v1}", "the key version appears more than once"),
        ("{version: v1, rules: {}}", "rules: must be a list"),
        ("a: [", "is not YAML"),
    ],
)
def test_other_documents_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


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
        ("offer: shared", "rules[0].offer: must not be shared without the field shared"),
        (f"offer: shared, mig: dynamic, {SHARED}", "offer: must not be shared with dynamic MIG: set whole"),
        (f"offer: shared, mig: {{layout: all-1g}}, {SHARED}", "offer: must not be shared with a layout"),
        ("offer: whole, shared: {strategy: MPS, shares: 2, fractional: true}", "rules[0].shared: fractional"),
        ("mig: dynamic, shared: {strategy: MPS, shares: 2, fractional: true}", "rules[0].shared: fractional"),
        (
            "offer: partitions, shared: [{strategy: MPS, shares: 2, fractional: true}]",
            "rules[0].shared: fractional",
        ),
        ("shared: {strategy: MPS}", "rules[0].shared: must have shares, memory or both"),
    ],
)
def test_forms_that_contradict_sharing_are_refused(rule: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", "test")

    assert message in str(refused.value)
    assert "; " not in str(refused.value).split(" is wrong: ")[1]
