"""What containers with GPUs run in the embedded cluster, whose containers run no programs of their own.

``nvidia-smi`` where CDI put it into the container, and ``gpuctl probe``, are run on this machine with what
the container was given. The driver's own programs wait, as servers do. gpu-memory-hook would find no
/proc/PID/cgroup. Instead of running it, this module sends the plugin the same request, or looks for devices
that MPS hides, and fails in the same words.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from envtest.client.shipped import PACKAGE_ROOT
from envtest.cluster import HostCommand, Output, PlayedContainer, PlayedPrograms
from fakegpu.cuda.fake_cuda import CGROUP
from fakegpu.machine.capabilities import VISIBLE_NODES

_RUN_OF_NVIDIA_SMI: frozenset[tuple[str, ...]] = frozenset({(), ("-L",), ("topo", "-m")})
"""With these arguments nvidia-smi is run on this machine: it only reads, and ends by itself.

With others it would write files, or reset GPUs, with the rights of whoever runs the cluster.
"""

_MACHINE_FILE = "libcuda.machine"
"""The file beside a fake libcuda with the text that opens its machine."""

_NOT_FOUND = 127
_METADATA = "-metadata.json"
_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for MPS
_METADATA_FOLDER = "/var/run/kubernetes.io/dra-device-attributes/"
_METADATA_FILE = "/gpu.nvidia.com-metadata.json"
_NOT_FOR_CUDA = ('"type":{"string":"vfio"}', '"type":{"string":"vgpu"}', '"adminAccess":')

# The version of the hook's requests.
_VERSION = 1
_AGAIN_SECONDS = 0.1
_MOST_BYTES = 64 * 1024
_NAMES_PREFIX = "io.kubernetes."


class GpuPrograms(PlayedPrograms):
    """See envtest.cluster.PlayedPrograms."""

    names = ("gpuctl probe", "nvidia-smi alone or with -L or topo -m")
    hooks = ("gpu-memory-hook",)

    def is_server(self, program: str) -> bool:
        """The driver's programs are."""
        return program.startswith("gpu-dra-")

    def command(
        self, container: PlayedContainer, program: str, arguments: Sequence[str]
    ) -> HostCommand | Output | None:
        """Run the probe, and nvidia-smi where CDI put it."""
        name = program.rpartition("/")[2]
        nodes = {VISIBLE_NODES: ":".join(sorted(container.view.nodes))}
        if name == "gpuctl" and list(arguments) == ["probe"]:
            return _probe(container, nodes)
        if name != "nvidia-smi" or tuple(arguments) not in _RUN_OF_NVIDIA_SMI:
            return None
        mounts = container.view.mounts
        path = next((one for one in mounts if one == program or one.rpartition("/")[2] == program), None)
        if path is None:
            return _NOT_FOUND, f"sh: 1: {program}: not found\n"
        return HostCommand([mounts[path].host_path, *arguments], nodes)

    def hook(self, container: PlayedContainer, hook: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        """Play gpu-memory-hook."""
        args = [str(one) for one in hook.get("args", ())]
        try:
            if args[1] == "mps":
                mounts = {path: one.host_path for path, one in container.view.mounts.items()}
                play_mps_hook(container.view.hooks, mounts)
            else:
                # cgroup v2 has one line in /proc/PID/cgroup, which begins with 0 and two colons.
                play_memory_hook(_options(args), state, f"0::{container.cgroup}\n")
        except HookFailed as error:
            return str(error)
        return ""


def _probe(container: PlayedContainer, nodes: Mapping[str, str]) -> HostCommand:
    """A ``gpuctl probe`` that has the container's devices.

    Its paths are those of the node. A container without a fake libcuda gets the real one, or none.
    """
    mounts = container.view.mounts
    on_node = {name: mounts[value].host_path for name, value in container.view.env.items() if value in mounts}
    libcuda = next((one.host_path for path, one in mounts.items() if "/libcuda.so." in path), "")
    machine = Path(libcuda).with_name(_MACHINE_FILE) if libcuda else None
    cuda = ["--cuda", machine.read_text().strip()] if machine is not None and machine.exists() else []
    # A claim has a file for each request; the embedded runtime mounts each of them.
    metadata = [f"--metadata={one.host_path}" for path, one in mounts.items() if path.endswith(_METADATA)]
    group = {CGROUP: f"/sys/fs/cgroup{container.cgroup}", "PYTHONPATH": str(PACKAGE_ROOT)}
    words = [sys.executable, "-P", "-m", "gpuctl", "probe", *cuda, *metadata]
    return HostCommand(words, {**nodes, **on_node, **group})


def _options(args: Sequence[str]) -> dict[str, str]:
    """The options of a command line that are ``--name=value``."""
    pairs = (one.removeprefix("--").partition("=") for one in args[1:])
    return {name: value for name, _, value in pairs}


class HookFailed(Exception):
    """The container must not run; the message is what the program writes to stderr."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"gpu.nvidia.com does not let this container start: {' '.join(fault.split())}")


def play_mps_hook(hooks: Sequence[Mapping[str, Any]], mounts: Mapping[str, str]) -> None:
    """Do what ``gpu-memory-hook mps`` does; raises HookFailed if CUDA would not show all devices.

    ``mounts`` are the paths of the host by those in the container.
    """
    calls = [one for one in hooks if list(one.get("args", ()))[1:2] == ["mps"]]
    pipes = {told["request"]: told["pipes"] for told in (_options(one["args"]) for one in calls)}
    folders = {Path(one["path"]).parents[2] for one in calls}
    hidden = [request for request, own in pipes.items() if own != mounts.get(_PIPES)]
    for path, file in mounts.items():
        request = path.removeprefix(_METADATA_FOLDER).removesuffix(_METADATA_FILE)
        is_metadata = path.endswith(_METADATA_FILE) and _is_of(Path(file), folders)
        if is_metadata and request not in pipes and _is_for_cuda(Path(file)):
            hidden.append(request)
    if hidden:
        shown = next((request for request, own in pipes.items() if own == mounts.get(_PIPES)), "")
        raise HookFailed(
            f"{_named(shown)} is used through MPS, so CUDA would hide {_named(hidden[0])} from the "
            "container: give each container one of the two (resources.claims[].request) (permanent)"
        )


def _is_of(file: Path, plugins: Container[Path]) -> bool:
    """Whether a file is metadata that a plugin wrote; ``plugins`` are the folders of plugins."""
    return file.parent.name == "metadata" and file.parents[2] in plugins


def _is_for_cuda(file: Path) -> bool:
    text = file.read_text()
    return not any(one in text for one in _NOT_FOR_CUDA)


def _named(request: str) -> str:
    parts = request.split("/")
    if len(parts) != 3:
        return "a device of another request"
    return f"request {parts[2]} of claim {parts[1]}"


def play_memory_hook(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> None:
    """Do what gpu-memory-hook does: return once a plugin has agreed; raises HookFailed.

    ``options`` are those of the program, by their names. ``proc_cgroup`` is the text of /proc/PID/cgroup.
    """
    fault = _plugin_refusal(
        Path(options["sockets"]), _line(options, state, proc_cgroup), float(options["seconds"])
    )
    if fault:
        raise HookFailed(fault)


def _line(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> bytes:
    annotations = {
        name: value for name, value in state["annotations"].items() if name.startswith(_NAMES_PREFIX)
    }
    asked = {
        "version": _VERSION,
        "claim": options["claim"],
        "device": options["device"],
        "state": {**state, "annotations": annotations},
        "cgroup": proc_cgroup,
    }
    return json.dumps(asked).encode() + b"\n"


def _plugin_refusal(folder: Path, line: bytes, seconds: float) -> str:
    """Why the container must not run; empty where it may."""
    deadline = time.monotonic() + seconds
    while True:
        # Looked for anew each time: the plugin may just be starting.
        sockets = _newest_first(folder)
        for index, path in enumerate(sockets):
            left = deadline - time.monotonic()
            # An instance that hangs must not use up the time of the others.
            answer = _answer(path, line, left / (len(sockets) - index))
            if answer is not None:
                return "" if answer["ok"] is True else str(answer.get("message") or "it does not say why")
        if time.monotonic() + _AGAIN_SECONDS >= deadline:
            return (
                f"the kubelet plugin, which would hold it to its share of GPU memory, did not answer within "
                f"{seconds:g} s at {folder}: look at the gpu.nvidia.com kubelet plugin of this node"
            )
        time.sleep(_AGAIN_SECONDS)


def _newest_first(folder: Path) -> list[Path]:
    """The sockets of the plugin's instances, of which there are two during a rolling update."""
    found = []
    with suppress(OSError):
        for path in folder.glob("[!.]*.sock"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def _answer(path: Path, line: bytes, seconds: float) -> Mapping[str, Any] | None:
    """The answer of one instance; None where there is none, or it cannot be read."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(seconds, 0.001))
        received = b""
        with suppress(OSError):
            connection.connect(str(path))
            connection.sendall(line)
            while not received.endswith(b"\n") and len(received) < _MOST_BYTES:
                part = connection.recv(_MOST_BYTES)
                if not part:
                    break
                received += part
    try:
        answer = json.loads(received)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("ok"), bool) else None
