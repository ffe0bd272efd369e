"""The words that the documentation does without, and how names are written."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """Words that are told, why, and whether a page about what changed may have them."""

    pattern: re.Pattern[str]
    why: str
    in_histories: bool = False


def _any_of(*words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


def _spelled(*spellings: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./:-])(?:{'|'.join(spellings)})(?![\w/:-]|\.\w)")


WORDS = (
    Words(
        _any_of(
            *(
                "simply",
                "please",
                "basically",
                "actually",
                "obviously",
                "of course",
                "easily",
                "needless to say",
            ),
            *("note that", "it should be noted", "in order to", "as a matter of fact", "just"),
        ),
        "filler: leave it out",
    ),
    Words(
        _any_of(
            *(
                "seamless(?:ly)?",
                "powerful",
                "cutting-edge",
                "state-of-the-art",
                "blazing(?:ly)?",
                "world-class",
            ),
            *(
                "effortless(?:ly)?",
                "leverag(?:e|es|ing)",
                "unlock(?:s|ing)?",
                "supercharge[sd]?",
                "game.changer",
            ),
            *("best-in-class", "enterprise-grade", "next-generation", "delight(?:s|ful)?", "amazing"),
        ),
        "marketing: say what it does",
    ),
    Words(
        _any_of("no longer", "used to be", "previously", "formerly", "recently", "nowadays", "at the moment"),
        "history: say how it is",
        in_histories=True,
    ),
    Words(
        re.compile(
            r"(?:^|[.:;] )now\b|\bnow,|\bis now\b|\bare now\b|\bcan now\b", re.IGNORECASE | re.MULTILINE
        ),
        "history: say how it is",
        in_histories=True,
    ),
    Words(_any_of("utils?", "and/or", "etc"), "says nothing: name the things"),
    Words(
        re.compile(
            r"\b(?:\w+n['\u2019]t|(?:it|that|there|what|here|let)['\u2019]s|\w+['\u2019](?:re|ve|ll))\b",
            re.IGNORECASE,
        ),
        "a contraction: write both words",
    ),
    Words(re.compile(r"\b([A-Za-z]{2,})\s\1\b(?!-)"), "the same word twice"),
)

NAMES = (
    (_spelled("nvml", "Nvml"), "NVML"),
    (_spelled("nvidia", "Nvidia", "nVidia", "nVIDIA"), "NVIDIA"),
    (_spelled("kubernetes", "k8s", "K8s"), "Kubernetes"),
    (_spelled("gpus?", "Gpus?"), "GPU"),
    (_spelled("mig", "Mig"), "MIG"),
    (_spelled("mps", "Mps"), "MPS"),
    (_spelled("VGPUs?", "vgpus?", "VGpus?"), "vGPU"),
    (_spelled("NVlinks?", "nvlinks?", "NvLinks?", "Nvlinks?"), "NVLink"),
    (_spelled("PCIE", "PCI-E", "pcie"), "PCIe"),
    (_spelled("[Rr]esource [Ss]lices?", "Resourceslices?", "resourceslices?"), "ResourceSlice"),
    (_spelled("[Rr]esource [Cc]laims?", "Resourceclaims?", "resourceclaims?"), "ResourceClaim"),
    (_spelled("[Dd]evice [Cc]lass(?:es)?", "Deviceclass(?:es)?"), "DeviceClass"),
    (_spelled("Kube-let", "KubeLet", "kube-let"), "kubelet"),
    (re.compile(r"(?<=[a-z,;] )Kubelet\b"), "kubelet"),
    (_spelled("kubevirt", "Kubevirt"), "KubeVirt"),
    (re.compile(r"(?<=[a-z,;] )Containerd\b|\bContainerD\b"), "containerd"),
    (_spelled("yaml", "Yaml"), "YAML"),
    (_spelled("json", "Json"), "JSON"),
    (_spelled("cel", "Cel"), "CEL"),
    (_spelled("cdi", "Cdi"), "CDI"),
    (_spelled("prometheus"), "Prometheus"),
    (_spelled("grafana"), "Grafana"),
    (_spelled("qemu", "Qemu"), "QEMU"),
)
"""How a name is not written, and how it is."""

INVERTED = re.compile(
    r"^(?:Neither|Nor|Never|Seldom|Rarely|Not only|Only (?:then|so|thus|there)|No more|Nowhere|Hardly)"
    r" (?:do|does|did|is|are|was|were|has|have|can|may|will|must|should)\b"
)
"""A sentence that begins with its end."""
