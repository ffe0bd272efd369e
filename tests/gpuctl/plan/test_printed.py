"""What ``gpuctl plan`` says about machines and node configurations stays as it was approved."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gpuctl.plan.node_gpus import gpu_table, published_gpus
from tests.clusters import plan_node
from tests.gpuctl.approved import approve
from tests.gpuctl.plan.printed import printed

EXAMPLES = "deploy/examples/node-config"
SHARES = "[{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 2}]"
CONFIGS = {
    "mixed.yaml": """\
version: v1
rules:
- {when: gpu.index < 2, mig: {dynamic: {profiles: [1g, 3g]}}}
- {when: gpu.index == 2, mig: {layout: [3g, 3g]}}
- {when: gpu.index == 3, mig: {layout: [4g, 4g]}}
- {when: gpu.index == 4, offer: hidden}
""",
    "shared.yaml": f"{{version: v1, rules: [{{offer: whole, mig: 'off', shared: {SHARES}}}]}}",
    "shared-partitions.yaml": f"{{version: v1, rules: [{{mig: {{layout: [3g, 3g]}}, shared: {SHARES}}}]}}",
    "coarse.yaml": "{version: v1, rules: [{offer: whole, shared: {strategy: MPS, memory: {step: 20Gi}}}]}",
    "manifest.yaml": "kind: ResourceClaimTemplate\n---\nkind: Pod\n",
    "broken.yaml": "version: v1\nrules: [\n",
    "pools.yaml": """\
version: v1
pools:
- {name: cut, nodeSelector: {matchLabels: {pool: cut}}, rules: [{mig: {layout: all-1g}}]}
rules: [{offer: hidden}]
""",
}
SITUATIONS = {
    "plan/whole": "plan --machine a30-quad",
    "plan/all-tiers": f"plan --machine a30-quad --config {EXAMPLES}/all-tiers.yaml",
    "plan/names": f"plan --machine hgx-h100 --config {EXAMPLES}/all-tiers.yaml --node-name worker-7 -o name",
    "plan/mixed": "plan --machine hgx-h100 --config mixed.yaml",
    "plan/passthrough": f"plan --machine passthrough-quad --config {EXAMPLES}/passthrough.yaml",
    "plan/vgpu": f"plan --machine vgpu-host-l40s --config {EXAMPLES}/vgpu-host.yaml",
    "plan/limits-held": f"plan --machine l4-quad --config {EXAMPLES}/memory-limits.yaml",
    "plan/too-few-steps": "plan --machine a30-quad --config coarse.yaml",
    "plan/shared": "plan --machine t4 --config shared.yaml",
    "plan/pool-of-labels": "plan --machine t4 --config pools.yaml --node-labels zone=a,pool=cut",
    "plan/karpenter": "plan --machine l40s-vgpu-unlicensed --config shared.yaml -o karpenter",
    "plan/labels-not-known": "plan --machine t4 --config pools.yaml",
    "plan/labels-wrong": "plan --machine t4 --config pools.yaml --node-labels pool",
    "plan/machine-unknown": "plan --machine hgx-h10",
    "plan/manifest": "plan --machine t4 --config manifest.yaml",
    "plan/not-yaml": "plan --machine t4 --config broken.yaml",
    "plan/no-machine": "plan",
    "topology/l40s-octo": "plan --topology --machine l40s-octo",
    "topology/json": "plan --topology --machine a30-passthrough-guest -o json",
    "partitions/a30-quad": "plan --partitions --machine a30-quad",
    "partitions/several-kinds": "plan --partitions --machine vgpu-host-a100-mdev --layout 3g,3g",
    "partitions/fits": "plan --partitions --machine hgx-h100 --layout 1g,1g,2g,3g",
    "partitions/nearest": "plan --partitions --machine hgx-h100 --layout 1g,1g,3g,4g",
    "partitions/no-profile": "plan --partitions --machine hgx-h100 --layout 5g,1g",
    "partitions/no-layout": "plan --partitions --machine hgx-h100 --layout 1g,",
    "partitions/offered": "plan --partitions --machine hgx-h100 --config mixed.yaml",
    "partitions/shared": "plan --partitions --machine hgx-h100 --config shared-partitions.yaml",
    "partitions/json": "plan --partitions --machine t4 --layout 1g --config shared.yaml -o json",
    "machines/all": "plan --machines",
    "machines/named": "plan --machines t4 passthrough-quad",
}


@pytest.mark.parametrize(("situation", "command"), SITUATIONS.items())
def test_the_answer_is_the_approved_one(tmp_path: Path, situation: str, command: str) -> None:
    words = command.split()
    for name in CONFIGS.keys() & {*words}:
        (tmp_path / name).write_text(CONFIGS[name])
        words[words.index(name)] = str(tmp_path / name)

    approve(situation, printed(*words, name=command).replace(f"{tmp_path}/", ""))


def test_a_terminal_gets_a_table_of_80_columns(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(CONFIGS["mixed.yaml"])
    drawn = StringIO()

    Console(file=drawn, width=80).print(
        gpu_table("node", published_gpus(plan_node("hgx-h100", "node", file).slices, ()))
    )

    approve("plan/terminal", drawn.getvalue())


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("plan t4", "name a machine with --machine (`gpuctl plan --machines` lists them), or a node"),
        ("plan --partitions", "name a machine with --machine"),
        ("plan --topology node-a --machine t4", "name one node, or a machine with --machine"),
        ("plan --topology --partitions", "give only one of --topology and --partitions"),
        ("plan --machine t4 --layout 1g", "--layout is for `gpuctl plan --partitions`"),
        ("plan --machines -o karpenter", "-o karpenter is for plan alone"),
        ("plan --machines --machine t4", "--machine is for plan alone and `gpuctl plan --topology` and"),
    ],
)
def test_what_makes_no_sense_together_is_refused_with_a_sentence(command: str, sentence: str) -> None:
    text = " ".join(printed(*command.split()).split())

    assert sentence in text
    assert text.endswith("(exit code 2)")
