"""A scenario fails where its page says something else than happens, or leaves something behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import PACKAGE_ROOT, paths
from tools.scenarios.description import DEFAULT_CONFIG, Node, Wanted
from tools.scenarios.page import parse_page
from tools.scenarios.places.place import Place, built_place
from tools.scenarios.places.projection import set_config
from tools.scenarios.running import Failure, run_page
from tools.scenarios.traces import traces, wait_as_before

WHOLE = PACKAGE_ROOT / "deploy" / "examples" / "node-config" / "passthrough.yaml"
CONFIG = (PACKAGE_ROOT / DEFAULT_CONFIG).read_text()
SET = (
    "kubectl create configmap gpu-dra-node-config -n gpu-dra --from-file=config.yaml={} --dry-run=client"
    " -o yaml | kubectl apply -f -"
)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with built_place(Wanted((Node("l4-quad", (("pool", "small"),)),), CONFIG), "embedded") as built:
        yield built


def run(place: Place, *blocks: str) -> Failure | None:
    return run_page(parse_page(Path("README.md"), "".join(blocks)), place, gone_seconds=2).failure


def sh(script: str, shown: str | None = None, info: str = "") -> str:
    block = f"```sh {info}\n{script}\n```\n"
    return block if shown is None else f"{block}```text\n{shown}\n```\n"


def test_the_programs_reach_the_cluster(place: Place) -> None:
    assert (
        run(
            place,
            sh("kubectl get nodes -L pool", "NAME STATUS ROLES AGE VERSION POOL\nnode-0 Ready … small"),
            sh("gpuctl status\nkubectl gpu status", "…\n1 node, 4 GPUs: …\n…"),
            sh("kubectl get deviceclasses vfio.gpu.nvidia.com -o name", "deviceclass.…/vfio.gpu.nvidia.com"),
            sh('ls "$(scenario-root node-0)/sys"', "…\nbus\n…"),
        )
        is None
    )


def test_another_output_is_a_failure(place: Place) -> None:
    failure = run(place, sh("kubectl get nodes -o name", "node/node-1"))
    assert failure is not None
    assert failure.output.splitlines() == ["- node/node-1", "+ node/node-0"]


def test_a_changed_kubeconfig_is_the_scenarios_own(place: Place) -> None:
    assert run(place, sh("kubectl config set-context --current --namespace other >/dev/null")) is None
    assert run(place, sh("kubectl get configmaps -o name", "")) is None


def test_what_is_left_over_is_a_failure(place: Place) -> None:
    failure = run(place, sh("true"), sh("kubectl create namespace left-over"))
    assert place.cluster is not None
    place.cluster.api.delete(paths.namespace("left-over"))
    assert failure is not None
    assert (failure.line, failure.reason) == (4, "not all is as it was before")
    assert "namespaces left-over is left over" in failure.output.splitlines()


def test_a_node_configuration_that_is_not_put_back_is_a_failure(place: Place) -> None:
    assert place.cluster is not None
    before = traces(place.cluster.api)
    failure = run(place, sh(f"{SET.format(WHOLE)} >/dev/null 2>&1"))
    set_config(place.cluster.api, CONFIG)
    assert failure is not None
    assert failure.output.splitlines()[0] == "the node configuration is another one"
    assert wait_as_before(place.cluster.api, before) == []


def test_the_node_follows_the_configuration_there_and_back(place: Place) -> None:
    names = "kubectl get resourceslices -o jsonpath='{.items[*].spec.devices[*].name}'"
    assert (
        run(
            place,
            sh(f"{names} | grep -c -- -ts-4", "1", "until-shown"),
            sh(f"echo 'version: v1' > $HOME/node.yaml\n{SET.format('$HOME/node.yaml')} >/dev/null 2>&1"),
            sh(f"{names} | grep -c -- -ts-4 || true", "0", "until-shown"),
            sh(f"{SET.format(DEFAULT_CONFIG)} >/dev/null 2>&1"),
            sh(f"{names} | grep -c -- -ts-4", "1", "until-shown"),
        )
        is None
    )


def test_a_gpu_that_is_left_sick_is_a_failure(place: Place) -> None:
    assert place.cluster is not None
    before = traces(place.cluster.api)
    failure = run(
        place,
        sh("scenario-fault node-0 xid 79 0"),
        sh("kubectl get resourceslices -o yaml | grep -c gpu-lost", "…", "until-shown"),
    )
    run(place, sh("scenario-fault node-0 reset 0"))
    assert failure is not None
    assert failure.output.startswith("device node-0/gpu.nvidia.com/gpu-")
    assert " has changed: taints was [] and is [" in failure.output
    assert wait_as_before(place.cluster.api, before) == []


def test_a_program_says_what_there_is_instead(place: Place) -> None:
    assert (
        run(
            place,
            sh(
                "scenario-fault node-7 reset 0",
                "…\nError: there is no node node-7: name one of node-0",
                "exits=2",
            ),
            sh("scenario-use node-0 9 70 1Gi", "scenario-use: the machine l4-quad has no GPU 9…", "exits=1"),
        )
        is None
    )
