"""Takes screenshots of the page and of ``gpuctl status --watch`` on a cluster with pods; records the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from tools.docs.pictures.demo_recording import record
from tools.docs.pictures.node_pictures import PODS, ROOT, SICK_GPU, XID, SceneImpossible, Wanted
from tools.scenarios.description import read_description
from tools.scenarios.places.place import Place, built_place
from tools.testbed.chromium import chromium

Object = dict[str, Any]

SCREENSHOTS = ("page.png", "page-dark.png", "status-watch.svg", "demo.svg")
"""The files of the screenshots. They differ each time, so they are never compared."""

_SCENE = ROOT / "deploy" / "ask-for-a-gpu" / "scenario.yaml"
_GREEDY = Wanted("research", "nine-gpus", "large")
"""A pod that stays pending, since it wants more GPUs than a node has."""

_AWAITED = (("problems", "gpu.nvidia.com/gpu-lost"), ("waiting", "no node can ever"))
"""Words that parts of the page have once it shows everything."""

_TERMINAL = (110, 22)
_WINDOW = (1180, 800)
_FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<title>{label}</title>
<desc>{words}</desc>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px system-ui, "DejaVu Sans", sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own format, but without fonts from another host, and with a description in words."""


def take(folder: Path) -> None:
    """Write the screenshots; raises DemoEnded and the errors of clusters and of the browser."""
    record(folder)
    with built_place(read_description(_SCENE).wanted, "embedded") as place:
        cluster = place.cluster
        if cluster is None:
            raise SceneImpossible(f"{_SCENE} has no nodes")
        with _served(cluster) as address, chromium() as tab:
            _play(cluster, place)
            tab.size(*_WINDOW)
            for scheme, name in (("light", "page.png"), ("dark", "page-dark.png")):
                tab.media(scheme)
                tab.open(address)
                for part, words in _AWAITED:
                    tab.wait_text(words, f"section[aria-labelledby={part}]")
                tab.picture(folder / name)
        view = ClusterView.connect(cluster.admin, None)
        (folder / "status-watch.svg").write_text(exported(view.slices(), view.claims()))


def _play(cluster: Cluster, place: Place) -> None:
    """Start the pods, and have a GPU fall sick."""
    for name in dict.fromkeys(one.namespace for one in (*PODS, _GREEDY)):
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "")
    for one in PODS:
        _start(cluster, one)
        wait_for(cluster.api, paths.pod(one.name, one.namespace), _runs)
    _start(cluster, _GREEDY, count=9)
    fault = [str(place.programs / "scenario-fault"), "node-0", "xid", str(XID), str(SICK_GPU)]
    subprocess.run(fault, env={**os.environ, **place.environment}, check=True)


def _start(cluster: Cluster, one: Wanted, count: int = 1) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": one.device_class, "count": count}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": one.name},
        "spec": {"devices": {"requests": [request]}},
    }
    container = {
        "name": "main",
        "image": "ubuntu:24.04",
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": one.name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": one.name}],
            "containers": [container],
        },
    }
    cluster.api.create(claim, one.namespace)
    cluster.api.create(pod, one.namespace)


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


def exported(slices: list[Object], claims: list[Object]) -> str:
    """What ``gpuctl status --watch`` draws on a terminal, as SVG."""
    width, height = _TERMINAL
    picture = live_picture(views_of(slices, claims), width, height)
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(picture, no_wrap=True, crop=True)
    label = "gpuctl status --watch on a terminal"
    # Braces would be fields of the format string.
    words = escape(" ".join(picture.plain.split())).replace("{", "(").replace("}", ")")
    code = _FORMAT.replace("{label}", label).replace("{words}", words)
    return console.export_svg(title="gpuctl status --watch", code_format=code, unique_id="terminal")
