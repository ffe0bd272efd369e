"""Names the files that are drawn, with their texts, and says which of them differ from what lies there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.docs.pictures.claim_flow import claim_flow
from tools.docs.pictures.node_pictures import forms, occupancy, topology
from tools.docs.pictures.one_gpu_three_ways import one_gpu_three_ways
from tools.docs.pictures.scene import ROOT
from tools.docs.pictures.tier_promises import PAGE, tiers, with_tables
from tools.docs.pictures.which_tier import which_tier

FOLDER = ROOT / "docs" / "pictures"

PICTURES: Mapping[str, Callable[[], str]] = {
    "one-gpu-three-ways.svg": one_gpu_three_ways,
    "forms.svg": forms,
    "topology.svg": topology,
    "occupancy.svg": occupancy,
    "claim-flow.svg": claim_flow,
    "which-tier.svg": which_tier,
    "tiers.svg": tiers,
}


def drawn() -> dict[Path, str]:
    """The files by their paths, and the page whose tables say the same as two of them."""
    pictures = {FOLDER / name: draw() for name, draw in PICTURES.items()}
    return {**pictures, PAGE: with_tables(PAGE.read_text())}


def stale(wanted: Mapping[Path, str]) -> list[Path]:
    """The files that are missing or differ."""
    return [file for file, text in wanted.items() if not file.is_file() or file.read_text() != text]
