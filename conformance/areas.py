"""All that is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.allocation import area as allocation_area
from conformance.cel import area as cel_area
from conformance.nodes import mig_area, passthrough_area, shares_area, vgpu_area
from conformance.pods import area as pods_area
from conformance.validation import area as validation_area

if TYPE_CHECKING:
    from conformance.area import Area

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
