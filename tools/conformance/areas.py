"""All that is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.conformance.allocation import area as allocation_area
from tools.conformance.cel import area as cel_area
from tools.conformance.nodes import mig_area, passthrough_area, shares_area, vgpu_area
from tools.conformance.pods import area as pods_area
from tools.conformance.validation import area as validation_area

if TYPE_CHECKING:
    from tools.conformance.area import Area

AREAS: tuple[Area, ...] = (
    allocation_area.AREA,
    cel_area.AREA,
    validation_area.AREA,
    pods_area.AREA,
    mig_area.AREA,
    shares_area.AREA,
    passthrough_area.AREA,
    vgpu_area.AREA,
)
