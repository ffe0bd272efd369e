"""Runs gpuctl in the plugin's pod of a node, by ``kubectl exec``, and hands back what it printed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ConfigError
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.doctor.outside.seen import Listed, Unread, name_of, namespace_of

TIMEOUT_SECONDS = 120.0
MOST_BYTES = 256 << 20
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class PluginPod:
    """Where the plugin runs on a node."""

    namespace: str
    pod: str
    container: str


def plugin_pod(pods: Listed, node: str) -> PluginPod | Unread:
    """The pod on the node that runs the kubelet plugin; the newest one in a rolling update."""
    if isinstance(pods, Unread):
        return pods
    found = [
        (str(pod["metadata"].get("creationTimestamp", "")), pod, programs["kubeletplugin"])
        for pod in pods
        if pod["spec"].get("nodeName") == node
        and (pod.get("status") or {}).get("phase") == "Running"
        and "kubeletplugin" in (programs := programs_of(pod["spec"]))
    ]
    if not found:
        return Unread(f"no pod with gpu-dra-kubeletplugin runs on {node}")
    _, pod, container = max(found, key=lambda one: one[0])
    return PluginPod(namespace_of(pod), name_of(pod), str(container["name"]))


def run_in_pod(
    target: PluginPod, words: Sequence[str], kubeconfig: Path | None, context: str | None
) -> bytes:
    """What ``gpuctl`` with these words printed in the pod; raises ConfigError where that cannot be had.

    Its exit code may be 1, as that of a doctor who found something.
    """
    command = [
        "kubectl",
        *(["--kubeconfig", str(kubeconfig)] if kubeconfig else []),
        *(["--context", context] if context else []),
        *("exec", "--namespace", target.namespace, target.pod, "--container", target.container),
        *("--", "gpuctl", *words),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "kubectl is not on the PATH, and nothing else runs a program in a pod",
            f"install kubectl, or run `gpuctl {' '.join(words)}` in the plugin's pod yourself",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"kubectl exec in {target.namespace}/{target.pod} did not end within {TIMEOUT_SECONDS:.0f} s",
            "see that the node answers: kubectl get node",
        ) from error
    if done.returncode not in (0, 1) or not done.stdout or len(done.stdout) > MOST_BYTES:
        said = " ".join(done.stderr.decode(errors="replace").split())[:_SHOWN_CHARACTERS]
        raise ConfigError(
            f"kubectl exec in {target.namespace}/{target.pod} gave no answer (exit code {done.returncode}): "
            f"{said or 'it said nothing'}",
            "it takes the right to create pods/exec, and an image with gpuctl",
        )
    return done.stdout
