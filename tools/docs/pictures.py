"""``python -m tools.docs.pictures`` takes the screenshots of the documentation again (needs chromium).

They show the page and ``gpuctl status --watch`` over a cluster with pods. The diagrams in docs/pictures are
changed by hand.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rich.console import Console

from envtest.client import paths
from envtest.client.waiting import wait_for, wait_until
from envtest.cluster import Cluster
from gpuctl.cli.cluster import ClusterView
from gpuctl.fleet.cluster import views_of
from gpuctl.status.live_picture import live_picture
from tools.scenarios.description import read_description
from tools.scenarios.places.place import Place, built_place
from tools.testbed.chromium import chromium

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
_NODES = ROOT / "deploy" / "ask-for-a-gpu" / "scenario.yaml"
_SICK_GPU, _XID = 6, 79
_WORDS = ("gpu-lost", "no node can ever")
"""The page has them once it shows the sick GPU and why the pod waits."""

_WINDOW = (1180, 800)
_TERMINAL = (110, 22)
_FONT_OF_ANOTHER_HOST = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A pod that asks for devices of a class, with a claim of its own name."""

    namespace: str
    name: str
    device_class: str
    count: int = 1


_PODS = (
    _Wanted("research", "train-0", "large"),
    _Wanted("research", "train-1", "large"),
    _Wanted("research", "tuning", "mig-large"),
    _Wanted("shop", "web", "mig-medium"),
    *(_Wanted("ci", f"ui-{number}", "mig-small") for number in range(3)),
    *(_Wanted("lab", f"lab-{number}", "shared-mps") for number in range(5)),
    *(_Wanted("eda", f"notes-{number}", "shared-timesliced") for number in range(2)),
)
_GREEDY = _Wanted("research", "nine-gpus", "large", count=9)
"""It stays pending, since it wants more GPUs than a node has."""


def take(folder: Path) -> None:
    """Write the screenshots; raises the errors of clusters and of the browser."""
    with built_place(read_description(_NODES).wanted, "embedded") as place:
        cluster = place.cluster
        if cluster is None:
            raise ValueError(f"{_NODES} has no nodes")
        _play(cluster, place)
        with _served(cluster) as address, chromium() as tab:
            tab.size(*_WINDOW)
            for scheme, name in (("light", "page.png"), ("dark", "page-dark.png")):
                tab.media(scheme)
                tab.open(address)
                for words in _WORDS:
                    tab.wait_text(words)
                tab.picture(folder / name)
        view = ClusterView.connect(cluster.admin, None)
        (folder / "status-watch.svg").write_text(terminal_picture(view.slices(), view.claims()))


def _play(cluster: Cluster, place: Place) -> None:
    """Start the pods, and have a GPU fall sick."""
    for name in dict.fromkeys(pod.namespace for pod in (*_PODS, _GREEDY)):
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "")
    for pod in _PODS:
        _start(cluster, pod)
        wait_for(cluster.api, paths.pod(pod.name, pod.namespace), _runs)
    _start(cluster, _GREEDY)
    fault = [str(place.programs / "scenario-fault"), "node-0", "xid", str(_XID), str(_SICK_GPU)]
    subprocess.run(fault, env={**os.environ, **place.environment}, check=True)


def _start(cluster: Cluster, pod: _Wanted) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": pod.device_class, "count": pod.count}}
    container = {
        "name": "main",
        "image": "ubuntu:24.04",
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    uses = [{"name": "gpu", "resourceClaimName": pod.name}]
    claim = ("resource.k8s.io/v1", "ResourceClaim", {"devices": {"requests": [request]}})
    for version, kind, spec in (claim, ("v1", "Pod", {"resourceClaims": uses, "containers": [container]})):
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": pod.name}, "spec": spec}
        cluster.api.create(made, pod.namespace)


def _runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


@contextmanager
def _served(cluster: Cluster) -> Iterator[str]:
    """The address of the page, served by a process of its own until the block ends."""
    command = (sys.executable, "-u", "-m", "gpuctl", "web", "--addr", "127.0.0.1:0")
    process = cluster.processes.start("page", [*command, "--kubeconfig", str(cluster.admin)])

    def printed_address() -> str | None:
        lines = (line for line in process.log.splitlines() if line.startswith("the page is at "))
        return next((line.split()[4] for line in lines), None)

    try:
        yield wait_until(["page"], cluster.processes, printed_address)
    finally:
        process.stop()


def terminal_picture(slices: list[Object], claims: list[Object]) -> str:
    """What ``gpuctl status --watch`` draws on a terminal, as SVG with words for those who cannot see it."""
    width, height = _TERMINAL
    picture = live_picture(views_of(slices, claims), width, height)
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(picture, no_wrap=True, crop=True)
    title = "gpuctl status --watch"
    drawn = _FONT_OF_ANOTHER_HOST.sub("", console.export_svg(title=title, unique_id="terminal"))
    words = f"<title>{title}</title><desc>{escape(' '.join(picture.plain.split()))}</desc>"
    drawn = re.sub(r"<svg [^>]*", rf'\g<0> role="img" aria-label="{title}"', drawn, count=1)
    return re.sub(r"<!-- .* -->", lambda _: words, drawn, count=1)


if __name__ == "__main__":
    take(FOLDER)
