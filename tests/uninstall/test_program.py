"""The program says in one line what it did, or why it did not."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from tests.uninstall.played_cluster import PlayedCluster
from uninstall.__main__ import main


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["--kubeconfig", str(folder / "kubeconfig"), "--settle-seconds=0", *arguments]
    )


def test_while_a_claim_has_a_device_it_fails_and_names_the_pods(
    played: PlayedCluster, tmp_path: Path
) -> None:
    played.allocate("one", "train")

    done = run(tmp_path)

    assert done.exit_code == 1
    assert "GPUs are in use by pod team/train on node-a" in done.output.splitlines()[-1]


def test_a_namespace_without_the_driver_is_left_alone(played: PlayedCluster, tmp_path: Path) -> None:
    for item in played.pods("gpu-dra-controller"):
        played.client.delete(f"/api/v1/namespaces/gpu-dra/pods/{item['metadata']['name']}")

    done = run(tmp_path, "--namespace=team")

    assert done.exit_code == 0, done.output
    assert "No slice is left" in done.output
    assert played.sets() == ["gpu-dra-controller", "gpu-dra-kubeletplugin"]
