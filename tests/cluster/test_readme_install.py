"""The README's commands install the driver as they stand there; its pods run and see what it says."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.cluster.installed_node import InstalledNode, values_of_fakes
from tests.clusters import (
    PACKAGE_ROOT,
    RealCluster,
    find_assets,
    go_programs,
    paths,
    python_command,
    python_environment,
)
from tools.scenarios.page import read_page
from tools.scenarios.places.place import Place, session_environment
from tools.scenarios.running import STEP_SECONDS, run_step
from tools.scenarios.session import Session
from tools.testbed.chart import HELMS

README = PACKAGE_ROOT / "README.md"
IMAGE = "localhost/gpu-dra:0.1.0"


def place_with_helm(cluster: RealCluster, program: str, folder: Path) -> Place:
    """Programs for a session: helm, which is told where the fakes are when it installs, kubectl, gpuctl."""
    (folder / "fakes.yaml").write_text(yaml.safe_dump(values_of_fakes(*cluster.pods_see_server_at)))
    helm = go_programs(program) / "helm"
    fakes = f'[ $1 != upgrade ] || set -- "$@" -f {folder}/fakes.yaml'
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


def an_image_that_cannot_be_pulled(session: Session, installs: str) -> None:
    """It ends nothing: the same commands can be run again, and after a failed uninstallation, too."""
    commands = (
        installs,  # the name that the README leaves to its reader
        installs.replace("REGISTRY", "registry.invalid").replace("--wait", "--wait --timeout=5s"),
        "helm -n gpu-dra uninstall gpu-dra --timeout=5s",
        "helm -n gpu-dra rollback gpu-dra 1",
        # helm 4 would wait for new pods of the MPS supervisor, which an upgrade does not replace.
        installs.replace("REGISTRY", "localhost").replace("--wait", ""),
        "kubectl -n gpu-dra delete pods --field-selector status.phase=Pending",
    )
    ran = [session.run(command, STEP_SECONDS, apart=True) for command in commands]

    assert [one.exits == 0 for one in ran] == [False, False, False, True, True, True], ran
    assert "/image/repository" in ran[0].printed


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

    with Session(tmp_path, home, session_environment(place, home)) as session:
        an_image_that_cannot_be_pulled(session, read_page(README).steps[0].script)
        for step in read_page(README).steps:
            script = step.script.replace("REGISTRY", "localhost")
            assert run_step(replace(step, script=script), session) is None

        for pod in cluster.api.list_objects(paths.pod(namespace="default")):
            (container,) = pod["status"]["containerStatuses"]
            assert container["restartCount"] == 0, pod["metadata"]["name"]
        doctor = session.run("gpuctl doctor", STEP_SECONDS, apart=True)
        assert doctor.exits == 0, doctor.printed
