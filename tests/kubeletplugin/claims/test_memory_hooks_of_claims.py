"""Claims whose memory is held have the hook of today's plugin in their specs, also after an upgrade."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driver.errors import DriverError
from kubeletplugin.claims.cdi.hooks import hooks_folder
from kubeletplugin.claims.cdi.spec import MEMORY_HOOK
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.claims.cdi.fake_hook import memory_hook_program
from tests.kubeletplugin.fake_node import FakeNode

GIB = 1 << 30


class LimitedNode:
    """A node whose plugin has a hook for memory, and claims whose memory is held."""

    def __init__(self, folder: Path) -> None:
        self.node = FakeNode(folder)

    def upgrade(self, content: str) -> None:
        """The next start is that of an image with another hook."""
        folder = self.node.folder / "images" / content
        self.node.memory_hook = memory_hook_program(folder / MEMORY_HOOK, content)
        self.node.restart()

    def limited(self, name: str, gpu: int) -> ClaimRef:
        """A prepared claim of a GPU whose containers are held to their memory."""
        claim = self.node.claim(name, gpu)
        self.node.prepare(claim)
        entry = self.node.journal.get(claim.uid)
        assert entry is not None
        held = tuple(replace(one, memory_limit_bytes=8 * GIB) for one in entry.devices)
        self.node.journal.put(replace(entry, devices=held))
        self.node.spec_path(claim).unlink()
        self.node.reconciler.restore_specs()
        return claim

    def program(self, claim: ClaimRef) -> Path:
        """The hook that the claim's spec has the runtime run."""
        spec = json.loads(self.node.spec_path(claim).read_text())
        (device,) = spec["devices"]
        (call,) = (one for one in device["containerEdits"]["hooks"] if one["hookName"] == "createRuntime")
        assert f"--claim={claim.uid}" in call["args"]
        assert f"--device={device['name']}" in call["args"]
        return Path(call["path"])

    def copies(self) -> int:
        """How many copies lie on the node, once the plugin has tidied up."""
        self.node.hooks.keep(self.node.store.names)
        return len(list(hooks_folder(self.node.folder).iterdir()))


@pytest.fixture
def limited(tmp_path: Path) -> LimitedNode:
    return LimitedNode(tmp_path)


def test_the_spec_of_a_claim_whose_memory_is_held_has_the_hook(limited: LimitedNode) -> None:
    limited.upgrade("first")
    claim, free = limited.limited("train", 0), limited.node.claim("free", 1)
    limited.node.prepare(free)

    assert limited.program(claim).is_file()
    assert MEMORY_HOOK not in limited.node.spec_path(free).read_text()


def test_after_an_upgrade_running_claims_get_the_new_hook_and_then_the_older_one_goes(
    limited: LimitedNode,
) -> None:
    limited.upgrade("first")
    claims = [limited.limited(name, gpu) for gpu, name in enumerate(("a", "b"))]
    before = limited.program(claims[0])
    limited.upgrade("second")
    assert limited.copies() == 2, "specs still name the older one"

    limited.node.reconciler.restore_specs()

    after = {limited.program(claim) for claim in claims}
    assert len(after) == 1
    assert before not in after
    assert limited.copies() == 1
    specs = [limited.node.spec_path(claim).stat().st_ino for claim in claims]
    limited.node.reconciler.restore_specs()
    assert [limited.node.spec_path(claim).stat().st_ino for claim in claims] == specs, "nothing is left to do"


def test_the_older_hook_stays_for_as_long_as_the_new_one_cannot_be_laid_out(limited: LimitedNode) -> None:
    limited.upgrade("first")
    claim = limited.limited("train", 0)
    before = limited.program(claim)
    limited.node.memory_hook = None
    limited.node.restart()
    limited.node.reconciler.restore_specs()

    assert limited.program(claim) == before
    assert before.is_file()
    limited.upgrade("second")
    limited.node.reconciler.restore_specs()
    assert limited.program(claim) != before


def test_without_the_hook_a_lost_spec_is_not_written_without_it(limited: LimitedNode) -> None:
    limited.upgrade("first")
    claim = limited.limited("train", 0)
    limited.node.memory_hook = None
    limited.node.restart()
    limited.node.spec_path(claim).unlink()

    limited.node.reconciler.restore_specs()
    assert not limited.node.spec_path(claim).exists()
    with pytest.raises(DriverError, match="has no gpu-memory-hook"):
        limited.node.prepare(claim)
