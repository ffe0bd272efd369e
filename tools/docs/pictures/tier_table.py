"""What users choose from: the tiers, what each promises, and the questions that lead to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["own", "limited", "shared"]
"""Whether what a pod has is its own, is shared within limits, or is shared with whoever is beside it."""

Kind = Literal["whole", "partition", "shared", "machine"]


@dataclass(frozen=True, slots=True)
class Promise:
    """How far a promise goes, and what that means."""

    level: Level
    words: str


@dataclass(frozen=True, slots=True)
class Tier:
    """Classes that promise the same.

    ``isolation`` are the values of the attribute ``memoryIsolation`` that their devices can have, None among
    them where a device can lack it. ``needs`` is what a node must have beside a GPU.
    """

    classes: tuple[str, ...]
    kind: Kind
    gives: str
    memory: Promise
    compute: Promise
    faults: Promise
    noise: Promise
    isolation: frozenset[str | None]
    needs: str = ""


_FAULTS_SHARED = Promise("shared", "a fatal fault of one pod can end the work of all on the GPU")
_NO_NEIGHBOR = "nobody else is on the GPU"

WHOLE = Tier(
    classes=("gpu.nvidia.com", "large", "medium"),
    kind="whole",
    gives="a GPU: any, of at least 36 GB, or of 20 to 36 GB",
    memory=Promise("own", "all of it"),
    compute=Promise("own", "all of it"),
    faults=Promise("own", "its own alone"),
    noise=Promise("own", _NO_NEIGHBOR),
    isolation=frozenset({"hardware", None}),
)
PARTITION = Tier(
    classes=("mig-large", "mig-medium", "mig-small"),
    kind="partition",
    gives="a MIG partition: at least 18, 9 or 4 GiB",
    memory=Promise("own", "its own, by hardware"),
    compute=Promise("own", "its own multiprocessors"),
    faults=Promise("own", "those of a neighbor stay in its partition; one of the board ends all"),
    noise=Promise("own", "its own caches and memory bandwidth"),
    isolation=frozenset({"hardware"}),
    needs="GPUs with MIG, and a node that offers it",
)
MPS = Tier(
    classes=("shared-mps",),
    kind="shared",
    gives="a share of a GPU, beside the others",
    memory=Promise("limited", "MPS refuses each process more than the share"),
    compute=Promise("limited", "at most its part of the multiprocessors; none is reserved"),
    faults=_FAULTS_SHARED,
    noise=Promise("limited", "within its part; caches and bandwidth are common"),
    isolation=frozenset({"mps"}),
    needs="the MPS supervisor; no vGPU guest, no GPU before Volta",
)
HELD = Tier(
    classes=("shared-memory",),
    kind="shared",
    gives="a share of a GPU, by turns or beside the others",
    memory=Promise("limited", "the NVIDIA driver or MPS refuses more; managed memory is not counted"),
    compute=Promise("shared", "in turns, or as `shared-mps`"),
    faults=_FAULTS_SHARED,
    noise=Promise("shared", "others delay it"),
    isolation=frozenset({"cgroup", "mps"}),
    needs="NVIDIA driver R615 with cgroup v2, or what `shared-mps` needs",
)
BURSTABLE = Tier(
    classes=("shared-burstable",),
    kind="shared",
    gives="a share of a GPU by turns, with more memory while it is free",
    memory=Promise(
        "limited", "what it asks for is guaranteed, up to twice that while no claim is guaranteed it"
    ),
    compute=Promise("shared", "in turns"),
    faults=_FAULTS_SHARED,
    noise=Promise("shared", "others delay it"),
    isolation=frozenset({"cgroup"}),
    needs="NVIDIA driver R615 with cgroup v2",
)
TURNS = Tier(
    classes=("shared-timesliced",),
    kind="shared",
    gives="a share of a GPU, by turns",
    memory=Promise(
        "shared", "the scheduler counts it; where the NVIDIA driver does not hold it, a pod can take all"
    ),
    compute=Promise("shared", "in turns"),
    faults=_FAULTS_SHARED,
    noise=Promise("shared", "others delay it"),
    isolation=frozenset({"none", "cgroup"}),
)
OF_PARTITION = Tier(
    classes=("shared-mig",),
    kind="shared",
    gives="a share of a MIG partition, by turns or beside the others of it",
    memory=Promise("shared", "apart from other partitions; MPS sets a limit that a process can go past"),
    compute=Promise("shared", "the partition's, together with its other shares"),
    faults=Promise("shared", "those of the partition's other shares"),
    noise=Promise("shared", "that of the partition's other shares"),
    isolation=frozenset({"none"}),
    needs="GPUs with MIG, and a node that shares partitions",
)
MACHINE = Tier(
    classes=("vfio.gpu.nvidia.com",),
    kind="machine",
    gives="a whole GPU for a virtual machine",
    memory=Promise("own", "all of it"),
    compute=Promise("own", "all of it"),
    faults=Promise("own", "its own alone"),
    noise=Promise("own", _NO_NEIGHBOR),
    isolation=frozenset({"hardware"}),
    needs="an IOMMU, and a node that offers passthrough",
)
VGPU = Tier(
    classes=("vgpu.gpu.nvidia.com",),
    kind="machine",
    gives="a vGPU for a virtual machine",
    memory=Promise("own", "that of its profile"),
    compute=Promise("shared", "in turns with other vGPUs; its own where it is MIG-backed"),
    faults=Promise("shared", "as NVIDIA's vGPU manager has it"),
    noise=Promise("shared", "other vGPUs delay it; none where it is MIG-backed"),
    isolation=frozenset({"hardware", None}),
    needs="a host with NVIDIA's vGPU manager",
)

TIERS = (WHOLE, PARTITION, MPS, HELD, BURSTABLE, TURNS, OF_PARTITION, MACHINE, VGPU)

NO_TIERS = ("mig.nvidia.com", "monitoring")
"""Classes that promise nothing: any partition, also one that shares its memory; and any device to look at."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the tiers for whoever says yes; who says no goes on to the next one."""

    words: str
    meaning: str
    tiers: tuple[Tier, ...]


QUESTIONS = (
    Question("Is it for a virtual machine?", "KubeVirt, or QEMU in a pod", (MACHINE, VGPU)),
    Question("Does it need a whole GPU, or several?", "training, NVLink, one large model", (WHOLE,)),
    Question(
        "Must no neighbor slow it or end it?", "services, tenants that do not trust each other", (PARTITION,)
    ),
    Question("Is it enough to take turns, with no memory limit?", "notebooks, tests, demos", (TURNS,)),
    Question(
        "Must it compute at the same time as the others?", "many small services that are rarely idle", (MPS,)
    ),
    Question("Is it to have more memory while that is free?", "peaks that may also be refused", (BURSTABLE,)),
)
OTHERWISE = HELD
"""The tier for whoever said no each time: memory that is limited, and nothing else."""
