"""Which vGPUs a host makes beside those that are there: the rules of NVIDIA's vGPU manager, pure.

A GPU that is shared by time is in equal-size mode unless somebody has set another: all of its vGPUs are of
one size in the vendor-specific framework, and of one type where there are mediated devices. In MIG mode each
vGPU takes a GPU instance of its profile (NVIDIA vGPU guide, "Valid vGPU configurations on a single GPU").
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Kind(Protocol):
    """What the rules ask of a type."""

    @property
    def id(self) -> int:
        """Its number."""
        ...

    @property
    def memory_bytes(self) -> int:
        """The frame buffer of one."""
        ...

    @property
    def most(self) -> int:
        """How many a GPU takes."""
        ...

    @property
    def mig_profile(self) -> str | None:
        """The profile of the GPU instance that one takes, None for one that shares the GPU by time."""
        ...


def supported(kinds: Iterable[Kind], *, mig_enabled: bool) -> tuple[Kind, ...]:
    """The types that NVML lists: in MIG mode those on GPU instances, else those that share by time."""
    return tuple(one for one in kinds if (one.mig_profile is not None) == mig_enabled)


def creatable(
    kinds: Sequence[Kind],
    made: Sequence[int],
    instances: Mapping[str, int] | None,
    *,
    free: bool,
    by_size: bool,
) -> tuple[int, ...]:
    """The types of which one more is made at a place, sorted.

    ``made`` are the types of all vGPUs of the GPU. ``instances`` is how many GPU instances there are of each
    profile, None with MIG mode off. ``free``: the place takes another, as a virtual function does that has
    none, and a GPU without SR-IOV always. ``by_size``: types of one size stand beside each other, as in the
    vendor-specific framework.
    """
    if not free:
        return ()
    by_id = {one.id: one for one in kinds}
    there = [by_id[number] for number in made]
    found = [
        one.id
        for one in supported(kinds, mig_enabled=instances is not None)
        if _fits(one, there, instances, by_size=by_size)
    ]
    return tuple(sorted(found))


def _fits(kind: Kind, there: Sequence[Kind], instances: Mapping[str, int] | None, *, by_size: bool) -> bool:
    if instances is not None:
        taken = Counter(one.mig_profile for one in there)
        return taken[kind.mig_profile] < instances.get(kind.mig_profile or "", 0)
    alike = all(one.memory_bytes == kind.memory_bytes if by_size else one.id == kind.id for one in there)
    return alike and len(there) < kind.most
