"""Which GPUs a reset takes together: from Ampere on the one alone, before it all that NVLinks connect."""

from __future__ import annotations

import pytest

from driver.hardware.gpu import Gpu, NvLink
from driver.nvml.pci_address import PciAddress
from kubeletplugin.reports.healing.healer import reset_together

ONE, TWO, THREE, FOUR = (PciAddress(0, bus, 0, 0) for bus in (1, 2, 3, 4))


def gpu(pci: PciAddress, *peers: PciAddress, switches: int = 0, architecture: str | None = "Volta") -> Gpu:
    links = tuple(NvLink(peer, 2) for peer in peers)
    return Gpu(pci, f"GPU-{pci}", 0, 0, architecture=architecture, links=links, switch_links=switches)


def test_links_are_followed_over_others() -> None:
    chain = [gpu(ONE, TWO), gpu(TWO, ONE, THREE), gpu(THREE, TWO), gpu(FOUR)]
    assert reset_together(THREE, chain) == (ONE, TWO, THREE)
    assert reset_together(FOUR, chain) == (FOUR,)


def test_nvswitches_connect_all_that_have_links_into_them() -> None:
    board = [gpu(ONE, switches=6), gpu(TWO, switches=6), gpu(THREE)]
    assert reset_together(ONE, board) == (ONE, TWO)


@pytest.mark.parametrize("architecture", ["Ampere", "Hopper", "Blackwell", None])
def test_others_are_reset_alone(architecture: str | None) -> None:
    board = [
        gpu(ONE, TWO, architecture=architecture, switches=12),
        gpu(TWO, ONE, architecture=architecture, switches=12),
    ]
    assert reset_together(ONE, board) == (ONE,)


def test_a_gpu_of_which_nothing_is_known_is_reset_alone() -> None:
    assert reset_together(ONE, []) == (ONE,)
