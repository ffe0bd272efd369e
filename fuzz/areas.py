"""All that is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz import allocation_area, cel_area, mig_area, shares_area, validation_area

if TYPE_CHECKING:
    from fuzz.area import Area

AREAS: tuple[Area, ...] = (
    allocation_area.AREA,
    cel_area.AREA,
    validation_area.AREA,
    mig_area.AREA,
    shares_area.AREA,
)
