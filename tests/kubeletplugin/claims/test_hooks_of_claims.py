"""The specs of claims name a copy of the hook, and each copy stays until the last of them is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletplugin.claims.cdi.hook import LINKS, HookSource
from kubeletplugin.claims.cdi.hooks import hooks_folder
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.claims.cdi.fake_hook import hook_program
from tests.kubeletplugin.fake_node import FakeNode


class HookedNode:
    """A node whose plugin has an image with a hook of some version."""

    def __init__(self, folder: Path) -> None:
        self.node = FakeNode(folder)
        self._images = folder / "images"

    def upgrade(self, version: str) -> None:
        """The next start is that of an image with this version."""
        program = hook_program(self._images / version / "nvidia-cdi-hook", version=version)
        self.node.hook = HookSource(program)
        self.node.restart()

    def versions(self) -> list[str]:
        """The versions that lie on the node, once the plugin has tidied up."""
        self.node.hooks.keep(self.node.store.names)
        return sorted(path.name.partition("-")[0] for path in hooks_folder(self.node.folder).iterdir())

    def edits(self, claim: ClaimRef) -> Any:
        """The edits of a claim's one device, and those of its spec."""
        spec = json.loads(self.node.spec_path(claim).read_text())
        return spec["devices"][0]["containerEdits"], spec["containerEdits"]


@pytest.fixture
def hooked(tmp_path: Path) -> HookedNode:
    return HookedNode(tmp_path)


def test_a_claims_spec_calls_the_copy_also_for_the_links_of_its_gpu(hooked: HookedNode) -> None:
    hooked.upgrade("1.20.1")
    claim = hooked.node.claim("train", 0)
    hooked.node.prepare(claim)

    of_gpu, of_all = hooked.edits(claim)

    assert [call["args"][1] for call in of_all["hooks"]][:2] == [LINKS, "enable-cuda-compat"]
    (call,) = of_gpu["hooks"]
    assert Path(call["path"]).is_file()
    pci = hooked.node.gpus[0]
    assert [link.partition("::")[2] for link in call["args"][3::2]] == [
        f"/dev/dri/by-path/pci-{pci}-card",
        f"/dev/dri/by-path/pci-{pci}-render",
    ]


def test_an_older_copy_stays_until_its_last_claim_is_unprepared(hooked: HookedNode) -> None:
    hooked.upgrade("1.18.0")
    before = hooked.node.claim("before", 0)
    hooked.node.prepare(before)
    hooked.upgrade("1.20.1")
    after = hooked.node.claim("after", 1)
    hooked.node.prepare(after)

    assert "/1.18.0-" in hooked.edits(before)[1]["hooks"][0]["path"]
    assert "/1.20.1-" in hooked.edits(after)[1]["hooks"][0]["path"]
    assert hooked.versions() == ["1.18.0", "1.20.1"]
    hooked.node.unprepare(before)
    assert hooked.versions() == ["1.20.1"]


def test_two_instances_of_an_upgrade_leave_each_others_copies_alone(hooked: HookedNode) -> None:
    hooked.upgrade("1.18.0")
    newer = hook_program(hooked.node.folder / "newer/nvidia-cdi-hook", version="1.20.1")
    hooked.node.hook = HookSource(newer)
    second = hooked.node.instance()
    try:
        second.hooks.keep(second.store.names)
        assert hooked.versions() == ["1.18.0", "1.20.1"]
    finally:
        second.peers.close()


def test_a_spec_that_is_written_again_calls_the_copy_of_today(hooked: HookedNode) -> None:
    hooked.upgrade("1.18.0")
    claim = hooked.node.claim("train", 0)
    hooked.node.prepare(claim)
    hooked.upgrade("1.20.1")
    hooked.node.spec_path(claim).unlink()

    hooked.node.reconciler.restore_specs()

    assert "/1.20.1-" in hooked.edits(claim)[1]["hooks"][0]["path"]
    assert hooked.versions() == ["1.20.1"]
