"""The messages that tables of the documentation quote in their first column are messages of the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.docs.site.places import DOCS, ROOT

PAGES = ("troubleshooting", "install", "lifecycle", "compare-and-migrate", "virtual-machines")
FOLDERS = ("driver", "controller", "kubeletplugin", "kubernetes_rules", "gpuctl", "deploy/image")
OTHERS = frozenset(
    {
        # Kubernetes and container runtimes
        *("cannot allocate all claims", "no such key: memory", "device class … does not exist"),
        *("DRA driver gpu.nvidia.com is not registered", "failed to fulfil mount request", "no such file"),
        *("unresolvable CDI devices k8s.gpu.nvidia.com/claim=…", "exec format error", "permission denied"),
        *("hostPath type check failed: …/plugins_registry", "error running createRuntime hook"),
        *('secret "gpu-dra-webhook-tls" not found', "certificate verify failed"),
        *("gpu-memory-hook: no such file", "writing … failed: Read-only file system", "Permission denied"),
        *("… failed: No space left on device", "no libnvidia-ml.so.1 or libcuda.so.1"),
        *("context deadline exceeded", "invalid ownership metadata"),  # helm
        "Job Failed",  # helm 4, in the words of the library that tells it when a Job has ended
        # CUDA, the NVIDIA driver and KubeVirt
        *("nvidia-smi: not found", "CUDA error 802", "CUDA error 805", "Driver/library version mismatch"),
        "insufficient permission",
        *("CUDA_ERROR_OUT_OF_MEMORY", "no files matching …-metadata.json", "Device or resource busy"),
        *("request … has N devices but KubeVirt only supports exactly one", "vfio … is not bound"),
    }
)
"""What others say, or what consists of values alone; nobody here can check it."""

_VALUE = re.compile(r"…|/plugins_registry/|gpu-memory-hook|[0-9]+(?: MiB)?|(?<=… )MiB")
_NO_MESSAGE = re.compile(
    r"^(?:PrepareFailed|<|/|--|[a-zA-Z.]+: |\{|productName|nvidia\.com/)|^[a-z-]+=|^iommu|^80Gi"
)


def quoted(page: str) -> list[str]:
    """The quotations in the first cells of tables."""
    lines = (DOCS / f"{page}.md").read_text().partition("<!-- checks of the doctor")[0].splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1] for line in lines if line.startswith("| ")]
    found = [span for cell in cells for span in cell.split("`")[1::2] if " " in span]
    return [one for one in found if not _NO_MESSAGE.match(one) and one not in OTHERS]


@cache
def messages() -> tuple[str, ...]:
    """All texts of the code, with … for each value in them, and all of the hook's program."""
    python = [text for folder in FOLDERS for file in (ROOT / folder).rglob("*.py") for text in _texts(file)]
    return (*python, *(file.read_text() for file in (ROOT / "deploy/image/memory-hook").rglob("*.go")))


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)


def is_said(quotation: str) -> bool:
    """Whether one message has all parts of the quotation between its values, in their order."""
    parts = [part.strip() for part in _VALUE.split(quotation) if len(part.strip()) > 2]
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.search(message) for message in messages())


@pytest.mark.parametrize("page", PAGES)
def test_messages_are_quoted_as_they_are(page: str) -> None:
    assert [one for one in quoted(page) if not is_said(one)] == []
