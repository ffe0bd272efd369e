"""The README's commands install the driver as they stand there; its pods run and see what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from envtest.client import paths
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.real.assets import find_assets
from envtest.real.build import go_programs
from envtest.real.cluster import RealCluster
from tests.cluster.installed_node import InstalledNode, values_of_fakes
from tests.eventually import eventually
from tests.flow.claims import wait_running
from tools.scenarios.comparing import line_matches
from tools.scenarios.page import read_page
from tools.scenarios.places.place import Place, session_environment
from tools.scenarios.running import STEP_SECONDS
from tools.scenarios.session import Session
from tools.testbed.chart import HELMS

README = PACKAGE_ROOT / "README.md"
EXAMPLE = read_page(README).quoted[0].text
IMAGE = "localhost/gpu-dra:0.1.0"


def place_with_helm(cluster: RealCluster, program: str, folder: Path) -> Place:
    """Programs for a session: helm, which is told where the fakes are when it installs, kubectl, gpuctl."""
    (folder / "fakes.yaml").write_text(yaml.safe_dump(values_of_fakes(*cluster.pods_see_server_at)))
    helm = go_programs(program) / "helm"
    fakes = f'[ $1 != install ] || set -- "$@" -f {folder}/fakes.yaml'
    environment = [f"{name}={value}" for name, value in python_environment(PACKAGE_ROOT).items()]
    gpuctl = shlex.join(["env", *environment, *python_command("-m", "gpuctl")])
    programs = {
        "helm": f"{fakes}\nexec {helm}",
        "kubectl": f"exec {find_assets(cluster.kubernetes).binary('kubectl')}",
        "gpuctl": f"exec {gpuctl}",
    }
    for name, script in programs.items():
        (folder / name).write_text(f'#!/bin/sh\n{script} "$@"\n')
        (folder / name).chmod(0o755)
    return Place(cluster, (), folder, {})


def shown_to_the_pod() -> list[str]:
    """The lines that the README shows of the pod's log, without what it says of them; any UUID fits."""
    block = README.read_text().partition("```\nGPU 0: ")[2].partition("```")[0]
    block = re.sub("GPU-[0-9a-f]+…", "GPU-…", block)
    return [line.partition("#")[0].rstrip() for line in f"GPU 0: {block}".splitlines()]


def log_of(session: Session, pod: str) -> str:
    """The log of a pod of the example, once its environment stands in it."""
    return eventually(
        f"the log of {pod}",
        lambda: session.run(f"kubectl logs {pod}", STEP_SECONDS).printed,
        lambda log: "PATH=" in log,
    )


def log_of_another(cluster: RealCluster, session: Session, name: str, change: Callable[[str], str]) -> str:
    """What a pod prints that is the example with this change, and has this name, as its claim has."""
    text = re.sub(r"\bshare\b|\blab\b", name, change(EXAMPLE))
    cluster.api.apply([*yaml.safe_load_all(text)], "default")
    wait_running(cluster, "default", name, timeout_seconds=120)
    return log_of(session, name)


def without_claim(example: str) -> str:
    """The pod alone, with a GPU in its limits."""
    pod = example.partition("---\n")[2]
    lines = [line for line in pod.splitlines() if "resourceClaims" not in line]
    return "\n".join(lines).replace("claims: [{name: gpu}]", "limits: {nvidia.com/gpu: 1}")


@pytest.mark.parametrize("program", HELMS)
def test_the_readme_as_it_stands_installs_the_driver_and_runs_its_pods(
    start_cluster: Callable[[int], RealCluster], driver_image: Path, tmp_path: Path, program: str
) -> None:
    cluster = start_cluster(1)
    InstalledNode.build(cluster.nodes[0], 0)
    cluster.import_image(driver_image)
    cluster.tag_image("localhost/gpu-dra:test", IMAGE)
    programs, home = tmp_path / "bin", tmp_path / "home"
    for folder in (programs, home):
        folder.mkdir()
    place = place_with_helm(cluster, program, programs)
    (home / "deploy").symlink_to(PACKAGE_ROOT / "deploy")
    (home / "lab.yaml").write_text(EXAMPLE)

    with Session(tmp_path, home, session_environment(place, home)) as session:
        for step in read_page(README).steps:
            ran = session.run(step.script.replace("REGISTRY", "localhost"), STEP_SECONDS)
            assert ran.exits == 0, ran.printed
        log = log_of(session, "lab")
        lines = [*map(str.strip, log.splitlines())]
        missing = [one for one in shown_to_the_pod() if not any(line_matches(one, line) for line in lines)]
        assert missing == [], log

        partition = log_of_another(
            cluster, session, "partition", lambda text: text.replace("shared-mps", "mig-small")
        )
        whole = log_of_another(cluster, session, "whole", lambda text: text.replace("shared-mps", "large"))
        limits = log_of_another(cluster, session, "limits", without_claim)
        assert len(re.findall("^ *MIG .*UUID: MIG-", partition, re.MULTILINE)) == 1
        for log in (whole, limits):
            assert len(re.findall("^GPU .*UUID: GPU-", log, re.MULTILINE)) == 1
            assert "MIG" not in log
            assert "CUDA_MPS" not in log

        for pod in cluster.api.list_objects(paths.pod(namespace="default")):
            (container,) = pod["status"]["containerStatuses"]
            assert container["restartCount"] == 0, pod["metadata"]["name"]
        doctor = session.run("gpuctl doctor", STEP_SECONDS, apart=True)
        assert doctor.exits == 0, doctor.printed
