"""Finds the driver's processes among the workloads of a cluster, by the program that a container runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

from gpuctl.cli.cluster import Object
from gpuctl.doctor.outside.seen import containers_of

Program = Literal["controller", "kubeletplugin", "mps", "page", "preemptor", "webhook"]

PROGRAMS: dict[str, Program] = {
    "gpu-dra-controller": "controller",
    "gpu-dra-kubeletplugin": "kubeletplugin",
    "gpu-dra-mps": "mps",
    "gpu-dra-page": "page",
    "gpu-dra-preemptor": "preemptor",
    "gpu-dra-webhook": "webhook",
}
ON_NODES = frozenset({"controller", "kubeletplugin", "mps"})
"""The programs that DaemonSets run on the nodes with GPUs."""

_MODULES: dict[str, Program] = {
    "controller": "controller",
    "kubeletplugin": "kubeletplugin",
    "kubeletplugin.sharing.mps": "mps",
    "controller.preemptor": "preemptor",
    "controller.webhook": "webhook",
}


def program_of(container: Object) -> Program | None:
    """Which of the driver's programs a container runs; None for any other program."""
    # Names of images and labels are the installer's to choose; the command line is not.
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        return None
    first = PurePosixPath(str(words[0])).name
    if first in PROGRAMS:
        return PROGRAMS[first]
    if first.startswith("python") and "-m" in words[:-1]:
        return _MODULES.get(str(words[words.index("-m") + 1]))
    return None


def programs_of(pod_spec: Object) -> dict[Program, Object]:
    """The driver's containers of a pod's spec, by their programs."""
    found = ((program_of(container), container) for container in containers_of(pod_spec))
    return {program: container for program, container in found if program is not None}


def flag_value(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, written as ``--flag=value`` or ``--flag value``; None if it is not given."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name == flag:
            return value if equals else following
    return None


def ours(pods: Iterable[Object]) -> list[Object]:
    """The pods of the driver."""
    return [pod for pod in pods if programs_of(pod["spec"])]


def workload_programs(workload: Object) -> dict[Program, Object]:
    """The driver's containers in the pod template of a DaemonSet or a Deployment, by their programs."""
    template: Any = workload["spec"].get("template") or {}
    return programs_of(template.get("spec") or {})


def account_of(pod_spec: Object) -> str:
    """The name of the service account of a pod's spec."""
    return str(pod_spec.get("serviceAccountName") or "default")
