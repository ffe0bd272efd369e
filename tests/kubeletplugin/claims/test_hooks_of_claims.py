"""The specs of claims name copies of the hooks, and each copy stays until the last of them is gone.

Claims whose memory is held have the hook of today's plugin, also after an upgrade.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeletplugin.claims.cdi.hook import LINKS
from kubeletplugin.claims.cdi.spec import MEMORY_HOOK
from tests.gpus import DriverError
from tests.kubeletplugin.claims.cdi.fake_hook import hook_program, memory_hook_program
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef, HookSource, hooks_folder


class HookedNode(FakeNode):
    """A node whose plugin has an image with a hook of some version, or with one for memory."""

    def upgrade(self, version: str) -> None:
        """The next start is that of an image with this version."""
        program = hook_program(self.folder / "images" / version / "nvidia-cdi-hook", version=version)
        self.hook = HookSource(program)
        self.restart()

    def upgrade_memory_hook(self, content: str) -> None:
        """The next start is that of an image with another hook for memory, or with none."""
        program = self.folder / "images" / content / MEMORY_HOOK
        self.memory_hook = memory_hook_program(program, content) if content else None
        self.restart()

    def versions(self) -> list[str]:
        """The versions that lie on the node, once the plugin has tidied up."""
        self.hooks.keep(self.store.names)
        return sorted(path.name.partition("-")[0] for path in hooks_folder(self.folder).iterdir())

    def edits(self, claim: ClaimRef) -> Any:
        """The edits of a claim's one device, and those of its spec."""
        spec = json.loads(self.spec_path(claim).read_text())
        return spec["devices"][0]["containerEdits"], spec["containerEdits"]

    def limited(self, name: str, gpu: int) -> ClaimRef:
        """A prepared claim of a GPU whose containers are held to their memory."""
        claim = self.claim(name, gpu)
        self.prepare(claim)
        entry = self.entry(claim)
        held = tuple(replace(one, memory_limit_bytes=8 << 30) for one in entry.devices)
        self.journal.put(replace(entry, devices=held))
        self.spec_path(claim).unlink()
        self.reconciler.restore_specs()
        return claim

    def program(self, claim: ClaimRef) -> Path:
        """The hook for memory that the claim's spec has the runtime run."""
        hooks = self.edits(claim)[0]["hooks"]
        (call,) = (one for one in hooks if one["hookName"] == "createRuntime")
        assert f"--claim={claim.uid}" in call["args"]
        return Path(call["path"])


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[HookedNode]:
    node = HookedNode(tmp_path)
    yield node
    node.stop()


def test_a_claims_spec_calls_the_copy_also_for_the_links_of_its_gpu(hooked: HookedNode) -> None:
    hooked.upgrade("1.20.1")
    claim = hooked.prepared("train", 0)

    of_gpu, of_all = hooked.edits(claim)

    assert [call["args"][1] for call in of_all["hooks"]][:2] == [LINKS, "enable-cuda-compat"]
    (call,) = of_gpu["hooks"]
    assert Path(call["path"]).is_file()
    pci = hooked.gpus[0]
    assert [link.partition("::")[2] for link in call["args"][3::2]] == [
        f"/dev/dri/by-path/pci-{pci}-card",
        f"/dev/dri/by-path/pci-{pci}-render",
    ]


def test_after_an_upgrade_running_claims_get_the_new_hook_and_then_the_older_one_goes(
    hooked: HookedNode,
) -> None:
    hooked.upgrade_memory_hook("first")
    claims = [hooked.limited(name, gpu) for gpu, name in enumerate(("a", "b"))]
    free = hooked.prepared("free", 2)
    assert MEMORY_HOOK not in hooked.spec_path(free).read_text()
    before = hooked.program(claims[0])
    hooked.upgrade_memory_hook("second")
    assert len(hooked.versions()) == 2, "specs still name the older one"

    hooked.reconciler.restore_specs()

    after = {hooked.program(claim) for claim in claims}
    assert len(after) == 1
    assert before not in after
    assert len(hooked.versions()) == 1
    specs = [hooked.spec_path(claim).stat().st_ino for claim in claims]
    hooked.reconciler.restore_specs()
    assert [hooked.spec_path(claim).stat().st_ino for claim in claims] == specs, "nothing is left to do"


def test_the_older_hook_stays_for_as_long_as_the_new_one_cannot_be_laid_out(hooked: HookedNode) -> None:
    hooked.upgrade_memory_hook("first")
    claim = hooked.limited("train", 0)
    before = hooked.program(claim)
    hooked.upgrade_memory_hook("")
    hooked.reconciler.restore_specs()

    assert hooked.program(claim) == before
    assert before.is_file()
    hooked.upgrade_memory_hook("second")
    hooked.reconciler.restore_specs()
    assert hooked.program(claim) != before


def test_without_the_hook_a_lost_spec_is_not_written_without_it(hooked: HookedNode) -> None:
    hooked.upgrade_memory_hook("first")
    claim = hooked.limited("train", 0)
    hooked.upgrade_memory_hook("")
    hooked.spec_path(claim).unlink()

    hooked.reconciler.restore_specs()
    assert not hooked.spec_path(claim).exists()
    with pytest.raises(DriverError, match="has no gpu-memory-hook"):
        hooked.prepare(claim)
