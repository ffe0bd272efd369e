"""Libraries are chosen by the platform of the image, whatever builds it, and by their digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.image.libraries import install, platforms


def test_wheels_need_no_newer_glibc_than_the_base_must_have() -> None:
    assert platforms("arm64")[-1] == "manylinux_2_28_aarch64"
    assert {tag.rsplit("_", 2)[-2:][-1] for tag in platforms("amd64")} == {"64"}
    assert all(tag.endswith("_x86_64") for tag in platforms("amd64"))


def test_a_platform_without_a_driver_is_refused() -> None:
    with pytest.raises(SystemExit, match="no image is built for riscv64: choose amd64 or arm64"):
        platforms("riscv64")


def test_nothing_is_installed_that_the_lock_does_not_name() -> None:
    command = install(Path("some.lock"), Path("/into"), "--platform", "manylinux_2_17_x86_64")
    assert {"--require-hashes", "--no-deps"} <= set(command)
    assert command[command.index("--only-binary") + 1] == ":all:"
