"""Measures the node: what there is of each sort, and how the driver's processes do."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from driver.hardware.pci import bound_driver
from envtest.client import paths
from envtest.client.errors import ClusterError
from tools.bench.process_use import resident_mib
from tools.soak.judgement import Process, Sample, Snapshot
from tools.soak.node import Node

TOMBSTONE_SECONDS = 600.0 + 300.0 + 60.0
"""A tombstone is kept for ten minutes, and then goes with the next look, which comes every five."""

IDLE_CONNECTIONS = 32
"""As many connections to the API server as a client keeps."""

GRPC_POOL = "event_engine"
"""The threads of gRPC's one pool: it makes more of them while it has much to do, and ends those that idle."""

_NUMBERS = re.compile(r"\d+")


def snapshot(node: Node) -> Snapshot:
    """What must be gone at the end of the run. Raises ClusterError."""
    found = {
        "files of the plugin": Counter(_files(node)),
        "CDI specs": Counter(file.name for file in node.driver.node.cdi_dir.iterdir()),
        "published devices": Counter(_published(node)),
        "GPUs": Counter(_gpus(node)),
        "MPS daemons": Counter(folder.name for folder in node.driver.mps_dir.iterdir()),
        "processes of MPS": Counter(_mps_processes(node)),
        "claims": Counter(_names(node, "/apis/resource.k8s.io/v1/resourceclaims")),
    }
    for name, process in node.processes().items():
        folder = Path(f"/proc/{process.host_pid}")
        threads = Counter((task / "comm").read_text().strip() for task in (folder / "task").iterdir())
        del threads[GRPC_POOL]
        found[f"threads of the {name}"] = threads
        found[f"descriptors of the {name}"] = Counter(_descriptors(folder)) - _may_be_open(node)
    return found


def _files(node: Node) -> Iterator[str]:
    """The files of the plugin's folder, without tombstones that still have to be kept."""
    root = node.driver.data_dir.resolve()
    for file in root.rglob("*"):
        if file.parent.name == "journal" and file.suffix == ".json":
            document = json.loads(file.read_text())["entry"]
            if document["state"] == "released" and time.time() - file.stat().st_mtime < TOMBSTONE_SECONDS:
                continue
        if file.is_file():
            yield str(file.relative_to(root))


def _published(node: Node) -> Iterator[str]:
    """The published devices with their taints, and a digest of everything else that is said of them."""
    for stored in node.cluster.api.list_objects(paths.resource_slice()):
        for device in stored["spec"].get("devices") or ():
            taints = [f"{one['key']}={one.get('value', '')}" for one in device.pop("taints", ())]
            digest = hashlib.sha256(json.dumps(device, sort_keys=True).encode()).hexdigest()[:8]
            yield " ".join([device["name"], digest, *taints])


def _gpus(node: Node) -> Iterator[str]:
    """What can be changed of each GPU."""
    state = node.machine.state
    for pci, gpu in state.gpus.items():
        made = [(one.profile_id, one.placement.start) for one in gpu.mig.instances]
        driver = bound_driver(node.driver.sysfs_root, pci)
        yield (
            f"{pci}: driver {driver}, compute mode {gpu.compute_mode}, time slice {gpu.time_slice}, "
            f"MIG mode {gpu.mig.enabled}, instances {made}, processes {gpu.process_ids}, {gpu.health}"
        )
    yield from (f"fault {one}" for one in (*state.faults, *state.mps_faults))


def _mps_processes(node: Node) -> Iterator[str]:
    """The processes of MPS in the cluster, by their programs."""
    namespace = Path(f"/proc/{node.cluster.kubelet(0).host_pid}/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                yield from (Path(word.decode()).name for word in words[:2] if b"cuda-mps" in word)
        except OSError:
            continue  # it ended meanwhile, or not even root may look at it


def _names(node: Node, path: str) -> Iterator[str]:
    for one in node.cluster.api.list_objects(path):
        yield f"{one['metadata']['namespace']}/{one['metadata']['name']}"


def _may_be_open(node: Node) -> Counter[str]:
    """What may be open or not at this moment: a session of the fake NVML, connections to the API server."""
    files = (node.driver.folder / "state.json.open" / "N", node.driver.folder / "driver" / "dev" / "nvidiaN")
    of_nvml = {_NUMBERS.sub("N", str(file)): len(node.gpus) for file in files}
    return Counter({**of_nvml, "tcp socket": IDLE_CONNECTIONS})


def _descriptors(process: Path) -> Iterator[str]:
    """What the open descriptors of a process lead to, without what differs between two instances."""
    sockets = dict(_sockets(process))
    for descriptor in (process / "fd").iterdir():
        try:
            target = descriptor.readlink()
        except OSError:
            continue  # closed meanwhile
        if target.suffix == ".log":
            yield "log"
        elif target.name.startswith("socket:"):
            # A connection that the peer has reset is in no table any more.
            yield sockets.get(target.name, "tcp socket")
        else:
            known = target.with_name("N") if target.parent.name.endswith(".open") else target
            # The fakes keep a file open that they have read, also when another one has taken its place.
            yield _NUMBERS.sub("N", str(known)).removesuffix(" (deleted)")


def _sockets(process: Path) -> Iterator[tuple[str, str]]:
    """The sockets of the machine as links of descriptors name them, each with its sort."""
    for sort, column in (("tcp", 9), ("unix", 6)):
        for line in (process / "net" / sort).read_text().splitlines()[1:]:
            yield f"socket:[{line.split()[column]}]", f"{sort} socket"


class Sampler:
    """Takes samples; remembers process ids, since to find one all of the machine are looked through."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pids: dict[tuple[str, int], int] = {}

    def sample(self, claims: int) -> Sample:
        """The processes of the driver that run now, with the number of claims so far."""
        found = {}
        for name, process in self._node.processes().items():
            try:
                known = name, self._node.cluster.processes.cluster_pid(process.name)
                pid = self._pids.setdefault(known, 0) or process.host_pid
                self._pids[known] = pid
                found[name] = Process(pid, resident_mib(pid))
            except (OSError, ClusterError):
                continue  # it is being restarted
        return Sample(found, claims)
