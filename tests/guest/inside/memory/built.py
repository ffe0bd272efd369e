"""What the tests of memory in the guest are given, built before it started."""

from dataclasses import dataclass
from pathlib import Path

BUILT = "GPU_DRA_BUILT_FOR_GUEST"
"""The variable that has the folder."""


@dataclass(frozen=True, slots=True)
class Built:
    """The folder with the double of NVML, the first process of containers, and two hooks."""

    folder: Path

    @property
    def nvml(self) -> Path:
        """The double."""
        return self.folder / "nvml.so"

    @property
    def first(self) -> Path:
        """What containers run."""
        return self.folder / "first"

    @property
    def hook(self) -> Path:
        """The project's hook."""
        return self.folder / "gpu-memory-hook"

    @property
    def nvidia_hook(self) -> Path:
        """That of NVIDIA's container toolkit."""
        return self.folder / "nvidia-cdi-hook"
