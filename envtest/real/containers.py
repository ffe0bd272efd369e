"""Runs commands inside containers of a cluster, through the containerd of their node."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence

from envtest.client.api import Object
from envtest.client.errors import ClusterError, CommandFailed
from envtest.client.layout import NodeLayout
from envtest.cluster import ContainerFacts, Mounted
from envtest.real.assets import Assets

_EXEC_SECONDS = 30.0

LOOK = ("sh", "-c", "find /dev -type c; echo; env; echo; cat /proc/self/mountinfo")
"""The command whose output ``facts`` reads."""

EVERYWHERE = frozenset(
    f"/dev/{name}" for name in ("console", "full", "null", "ptmx", "random", "tty", "urandom", "zero")
)


def ctr(assets: Assets, node: NodeLayout) -> list[str]:
    """The beginning of a command line of containerd's client on a node."""
    client = [str(assets.binary("ctr")), "--address", str(node.containerd_socket)]
    # containerd's namespace for what the kubelet runs.
    return [*client, "--namespace", "k8s.io"]


def container_id(pod: Object, container: str | None) -> str:
    """The runtime's id of a container; of the first one when none is named.

    Raises:
        ClusterError: there is no such container, or it was never started.
    """
    named = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    name = container or pod["spec"]["containers"][0]["name"]
    status = pod.get("status", {})
    for entry in [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]:
        if entry["name"] == name and entry.get("containerID"):
            return str(entry["containerID"]).removeprefix("containerd://")
    raise ClusterError(f"container {name} of pod {named} is not started: wait until it runs")


def run_in_container(assets: Assets, node: NodeLayout, container: str, command: Sequence[str]) -> str:
    """Run a command in a running container, by the container's id, and return its stdout.

    Raises:
        CommandFailed: the command ended with an error, or could not be started.
        ClusterError: it did not end in time.
    """
    # ctr puts the pipes of a command into /run/containerd by default, which differs outside of the cluster.
    fifos = node.folder / "fifos"
    fifos.mkdir(exist_ok=True)
    task = ["tasks", "exec", "--fifo-dir", str(fifos), "--exec-id", uuid.uuid4().hex, container]
    what = f"{' '.join(command)} in container {container[:12]} on {node.name}"
    try:
        done = subprocess.run(
            [*ctr(assets, node), *task, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_EXEC_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{what} did not end within {_EXEC_SECONDS:g} s") from error
    if done.returncode != 0:
        raise CommandFailed(what, done.returncode, done.stdout, done.stderr)
    return done.stdout


def kill_container(assets: Assets, node: NodeLayout, container: str) -> None:
    """End the processes of a container by SIGKILL, by the container's id.

    Raises:
        CommandFailed: it does not run.
    """
    command = [*ctr(assets, node), "tasks", "kill", "--signal", "SIGKILL", container]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        what = f"killing container {container[:12]} on {node.name}"
        raise CommandFailed(what, done.returncode, done.stdout, done.stderr)


def facts(looked: str) -> ContainerFacts:
    """What a container finds inside, from what ``LOOK`` printed."""
    devices, variables, table = looked.split("\n\n", 2)
    nodes = [
        path for path in devices.splitlines() if path not in EVERYWHERE and not path.startswith("/dev/pts/")
    ]
    # A value with line breaks would be cut here; CDI sets none.
    pairs = [line.partition("=") for line in variables.splitlines()]
    # In mountinfo the fourth field is the source of a mount, the fifth its path, the sixth its options.
    mounts = {
        fields[4]: Mounted(fields[3], tuple(fields[5].split(",")))
        for fields in (line.split() for line in table.splitlines())
    }
    return ContainerFacts(tuple(sorted(nodes)), {name: value for name, _, value in pairs}, mounts)
