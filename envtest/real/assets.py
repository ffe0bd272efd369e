"""Finds the binaries that a cluster runs: given by the user, cached, or built now."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envtest.client.errors import MissingPrerequisite
from envtest.real import build

# ptp, host-local and loopback are CNI plugins: pods get their network from them.
BINARIES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "ptp",
    "host-local",
    "loopback",
)
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"


@dataclass(frozen=True, slots=True)
class Assets:
    """A folder with all of ``BINARIES``, of one Kubernetes minor version such as ``1.37``."""

    folder: Path
    kubernetes: str

    def binary(self, name: str) -> Path:
        """The path of one binary."""
        return self.folder / name


def find_assets(
    kubernetes: str = build.DEFAULT_KUBERNETES, environment: Mapping[str, str] = os.environ
) -> Assets:
    """The binaries of a Kubernetes version: from ``KUBEBUILDER_ASSETS``, else the cache, else built.

    A first build takes minutes (about eleven on two cores).

    Args:
        kubernetes: a minor version of ``build.VERSIONS``.
        environment: the environment variables to go by.

    Raises:
        MissingPrerequisite: ``KUBEBUILDER_ASSETS`` lacks a binary or has another version, or there
            is no Go to build with.
        BuildFailed: Go failed.
    """
    given = environment.get(ASSETS_VARIABLE)
    if given:
        folder = Path(given).resolve()
        check_complete(folder)
        check_version(folder, kubernetes)
        return Assets(folder, kubernetes)
    return Assets(build.built(kubernetes, environment), kubernetes)


def check_complete(folder: Path) -> None:
    """Check that the folder holds all binaries.

    Raises:
        MissingPrerequisite: names the binaries that are missing or cannot be executed.
    """
    missing = [name for name in BINARIES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise MissingPrerequisite(
            f"{ASSETS_VARIABLE}={folder} lacks {', '.join(missing)}: add them, or unset "
            f"{ASSETS_VARIABLE} to have all binaries built from Go modules"
        )


def check_version(folder: Path, kubernetes: str) -> None:
    """Check that the kube-scheduler in the folder is of this minor version.

    Raises:
        MissingPrerequisite: it is of another one, or does not say.
    """
    # The others are taken for the same version, or for the one that goes with it: build.SCHEDULER_ALONE.
    asked = [str(folder / "kube-scheduler"), "--version"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    if not answer.stdout.startswith(f"Kubernetes v{kubernetes}."):
        raise MissingPrerequisite(
            f"{ASSETS_VARIABLE}={folder} holds {answer.stdout.strip() or 'an unknown version'}, "
            f"but Kubernetes {kubernetes} was asked for: ask for the version that it holds, or "
            f"unset {ASSETS_VARIABLE}"
        )
