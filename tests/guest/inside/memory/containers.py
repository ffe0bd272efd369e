"""Containers of the real runc, each with the hooks and the variables that its CDI devices give it.

They are started as containerd starts them with its CDI library: the pod's own variables first, those of the
devices after them, and the devices' hooks at the place that each names. Device nodes and mounts are left out:
nothing in these containers uses a GPU.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envtest.cdi import ContainerView, resolve
from kubeletplugin.kubelet.wire.names import cdi_qualified_name

CGROUPS = Path("/sys/fs/cgroup")
STAY = "stay"
SECONDS = "--seconds="
NAMESPACES = ("pid", "ipc", "uts", "mount", "cgroup")
_FIRST, _RECORD = "/first", "/record"
_PATIENCE_SECONDS = 120


@dataclass(slots=True)
class Runc:
    """runc with a state of its own, and what its containers have in common.

    ``cdi`` is the folder of CDI specs; ``record`` the file in which first processes note that they run.
    """

    folder: Path
    cdi: Path
    record: Path
    starts: int = 0

    @classmethod
    def lay(cls, folder: Path, cdi: Path, record: Path, first: Path) -> Runc:
        """Lay a root file system with ``first`` as its only program."""
        root = folder / "rootfs"
        for name in ("proc", "dev", "sys"):
            (root / name).mkdir(parents=True)
        (root / _RECORD[1:]).touch()
        (root / _FIRST[1:]).write_bytes(first.read_bytes())
        (root / _FIRST[1:]).chmod(0o755)
        return cls(folder, cdi, record)

    def call(self, *words: str, said: Path | None = None) -> int:
        """Run it, with what it says in a file: containers keep what they inherit. Returns its exit status."""
        with (said or self.folder / "said").open("wb") as file:
            return self.begin(file, *words).wait(_PATIENCE_SECONDS)

    def begin(self, said: Any, *words: str, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start it, by the command ``within`` where that is given."""
        return subprocess.Popen(
            [*within, "runc", "--root", str(self.folder / "state"), *words],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip

    def running(self) -> list[str]:
        """The ids of the containers that it knows."""
        state = self.folder / "state"
        return sorted(path.name for path in state.iterdir()) if state.is_dir() else []


@dataclass(slots=True)
class Container:
    """One container of a pod; each start has an id and a cgroup of its own, as with containerd.

    ``devices`` are the names of CDI devices; ``parent`` is the cgroup of the pod, and ``of_id`` makes the
    name of the container's own from its id. ``then`` is what the first process does: stay, or end with this
    status. ``extra_hooks`` are hooks beside those of the devices; the devices' own wait ``seconds`` for the
    plugin where that is given, since nobody wants to see all of their patience. ``id`` is that of the latest
    start. runc is run by the command ``within``.
    """

    runc: Runc
    name: str
    devices: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    parent: str = "/kubepods/burstable/pod-a"
    of_id: str = "{id}"
    then: str = STAY
    pod: str = "train"
    extra_hooks: Sequence[Mapping[str, Any]] = ()
    namespaces: Sequence[str] = NAMESPACES
    within: Sequence[str] = ()
    seconds: int | None = None
    id: str = ""
    _view: ContainerView | None = None

    @property
    def cgroup(self) -> str:
        """Its cgroup, as NVML has it."""
        return f"{CGROUPS}{self._path}"

    @property
    def said(self) -> str:
        """What runc said of the latest start."""
        return (self._bundle / "said").read_text()

    def look(self) -> None:
        """Read the CDI specs now; whatever becomes of them, the container starts by what they said."""
        self._view = resolve(self.runc.cdi, [cdi_qualified_name(one) for one in self.devices])

    def start(self) -> bool:
        """Start it anew; whether its first process was let run."""
        return self.began().wait(_PATIENCE_SECONDS) == 0

    def began(self) -> subprocess.Popen[bytes]:
        """Begin to start it anew, without waiting for anything."""
        if self._view is None:
            self.look()
        self.runc.starts += 1
        self.id = f"{self.name}-{self.runc.starts}"
        self._bundle.mkdir(parents=True)
        (self._bundle / "config.json").write_text(json.dumps(self._config()))
        with (self._bundle / "said").open("wb") as said:
            words = ("run", "--detach", "--bundle", str(self._bundle), self.id)
            return self.runc.begin(said, *words, within=self.within)

    def end(self) -> None:
        """Kill what runs of it and remove it with its cgroup, as a runtime does after a failed start, too."""
        if self.id:
            self.runc.call("delete", "--force", self.id)

    @property
    def _path(self) -> str:
        return f"{self.parent}/{self.of_id.format(id=self.id)}"

    @property
    def _bundle(self) -> Path:
        return self.runc.folder / "bundles" / self.id

    def _config(self) -> dict[str, Any]:
        assert self._view is not None
        view = self._view
        variables = {"PATH": "/", **self.variables, **view.env}
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": 0, "gid": 0},
                "args": [_FIRST, _RECORD, self.id, self.then],
                "env": [f"{name}={value}" for name, value in variables.items()],
                "cwd": "/",
            },
            "root": {"path": str(self.runc.folder / "rootfs"), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
                {
                    "destination": _RECORD,
                    "type": "bind",
                    "source": str(self.runc.record),
                    "options": ["bind", "rw"],
                },
            ],
            "hooks": _hooks([*map(self._hastened, view.hooks), *self.extra_hooks]),
            "annotations": {
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.container-name": self.name,
                "io.kubernetes.cri.sandbox-name": self.pod,
                "io.kubernetes.cri.sandbox-namespace": "team",
            },
            "linux": {
                "cgroupsPath": self._path,
                "namespaces": [{"type": name} for name in self.namespaces],
                "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            },
        }

    def _hastened(self, hook: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.seconds is None:
            return hook
        arguments = [f"{SECONDS}{self.seconds}" if one.startswith(SECONDS) else one for one in hook["args"]]
        assert arguments != hook["args"], "the hook is told how long to wait"
        return {**hook, "args": arguments}


def _hooks(given: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The hooks of CDI edits as OCI has them (pkg/cdi/container-edits.go)."""
    found: dict[str, list[dict[str, Any]]] = {}
    for hook in given:
        call = {key: hook[key] for key in ("path", "args", "env", "timeout") if key in hook}
        found.setdefault(hook["hookName"], []).append(call)
    return found
