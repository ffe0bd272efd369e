"""The license of a fake vGPU guest: what its license client has got, which ends and is renewed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FakeLicense:
    """Whether a vGPU has its license, and when that ends: ISO 8601 with a zone, None for never."""

    licensed: bool = True
    expires: str | None = None

    @classmethod
    def from_document(cls, document: object) -> FakeLicense:
        """Read from a state file; raises TypeError when it is something else."""
        if not isinstance(document, dict):
            raise TypeError("license is no mapping")
        return cls(**document)


LICENSED = FakeLicense()
