"""All that is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.area import Area

AREAS: tuple[Area, ...] = ()
