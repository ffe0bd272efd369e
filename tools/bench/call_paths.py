"""Counts the files of ours that three calls pass: how much somebody reads who follows one of them.

``python -m tools.bench.call_paths``, run in the root of a checkout, prints the files, and the most that each
call may pass. Counted is the second call of its kind: of the first much is kept. Fakes and clients are not
counted.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.cli.cluster import connect_client
from gpuctl.explain.answer import explain_pod
from gpuctl.explain.picture import picture
from tests.gpuctl.explain.site import WHOLE, Site, claim_spec
from tests.kubeletplugin.fake_node import FakeNode

ROOT = f"{Path(__file__).resolve().parents[2]}/"

MOST: Mapping[str, int] = {"prepare a whole GPU": 35, "explain a pod": 38, "POST a pod": 23}
"""The most files that each call may pass."""


class Profile:
    """Notes the files, below some folders, whose functions are called while it is on, in all new threads."""

    def __init__(self) -> None:
        self._folders: tuple[str, ...] = ()
        self._files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note the file of a call (sys.setprofile); a comprehension is a part of its function."""
        code = frame.f_code
        if event == "call" and self._folders and not code.co_name.startswith("<"):
            file = code.co_filename.removeprefix(ROOT)
            if file.startswith(self._folders):
                self._files.add(file)

    def of(self, call: Callable[[], object], *folders: str) -> set[str]:
        """The files that the second of two calls passes."""
        call()
        self._folders, self._files = folders, set()
        sys.setprofile(self)
        try:
            call()
        finally:
            sys.setprofile(None)
            self._folders = ()
        return self._files


def _prepare(profile: Profile, folder: Path) -> set[str]:
    node = FakeNode(folder, "a30-quad")
    try:
        claims = iter([node.claim(name, index) for index, name in enumerate(("first", "second"))])
        folders = ("proto/", "kubernetes_rules/", "driver/", "kubeletplugin/")
        return profile.of(lambda: node.prepare(next(claims)), *folders)
    finally:
        node.stop()


def _explain(profile: Profile) -> set[str]:
    """A pod waits for a GPU; a pod of lower priority has it."""
    site = Site("node-a", machine="hgx-h100")
    site.runs("batch", "node-a", claim_spec(WHOLE, count=8))
    pod = site.waits("train", claim_spec(WHOLE), priority=10)
    folders = ("gpuctl/", "kubernetes_rules/", "driver/")
    return profile.of(lambda: picture(explain_pod(pod, site.snapshot())), *folders)


def _post(profile: Profile, folder: Path) -> set[str]:
    with EmbeddedApiServer() as server:
        client = connect_client(server.write_kubeconfig(folder / "config"))
        spec = {"containers": [{"name": "main", "image": "x"}]}
        pods = ({"metadata": {"name": name}, "spec": spec} for name in ("first", "second"))
        path = "/api/v1/namespaces/default/pods"
        return profile.of(lambda: client.create(path, next(pods)), "envtest/", "kubernetes_rules/")


@contextmanager
def _in_new_threads(profile: Profile) -> Iterator[None]:
    # The calls of the plugin and of the API server run in threads of their own.
    threading.setprofile(profile)
    try:
        yield
    finally:
        threading.setprofile(None)


def measured() -> dict[str, set[str]]:
    """The files that each call passes."""
    profile = Profile()
    with _in_new_threads(profile), tempfile.TemporaryDirectory() as folder:
        return {
            "prepare a whole GPU": _prepare(profile, Path(folder) / "node"),
            "explain a pod": _explain(profile),
            "POST a pod": _post(profile, Path(folder)),
        }


def main() -> int:
    """Print the files; returns 1 if a call passes more than it may."""
    paths = measured()
    for name, files in paths.items():
        print(f"{name}: {len(files)} files, {MOST[name]} at most")
        for file in sorted(files):
            print(f"  {file}")
    return int(any(len(files) > MOST[name] for name, files in paths.items()))


if __name__ == "__main__":
    sys.exit(main())
