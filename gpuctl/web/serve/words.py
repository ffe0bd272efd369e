"""Says in words what bars show: for people who do not see them, and for everybody who points at one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup, escape

from gpuctl.fleet.gpus import GpuState, Use
from gpuctl.fleet.nodes import NodeView

USE_WORDS: Mapping[Use, str] = {
    "whole": "whole",
    "partition": "in partitions",
    "shared": "in shares",
    "machine": "for a virtual machine",
    "several": "in several forms",
    "free": "free",
}
"""How a GPU is used, by ``GpuState.use``."""

_UNAVAILABLE = "unavailable"
_COMMAND = re.compile(r"`([^`]+)`")


def percent(part: float) -> str:
    """A part as people read it: something that is not all is never 100 %, and not nothing never 0 %."""
    whole = round(part * 100)
    if 0 < part < 1:
        whole = min(99, max(1, whole))
    return f"{whole} %"


def gpu_words(gpu: GpuState) -> str:
    """``GPU 3: in partitions, 43 % given to 3 claims; tainted gpu.nvidia.com/xid=79:NoSchedule``."""
    name = gpu.title if gpu.index is None else f"GPU {gpu.index}"
    taints = f"; tainted {', '.join(str(one.taint) for one in gpu.taints)}" if gpu.taints else ""
    return f"{name}: {use_of(gpu)}{taints}"


def use_of(gpu: GpuState) -> str:
    """``in partitions, 43 % given to 3 claims``."""
    if gpu.use == "free":
        return _UNAVAILABLE if gpu.blocked else USE_WORDS["free"]
    claims = "1 claim" if gpu.claims == 1 else f"{gpu.claims} claims"
    return f"{USE_WORDS[gpu.use]}, {percent(gpu.used)} given to {claims}"


def node_words(node: NodeView) -> str:
    """``8 GPUs: 3 whole, 1 in partitions, 4 free; 1 sick``."""
    uses = Counter(
        _UNAVAILABLE if gpu.use == "free" and gpu.blocked else USE_WORDS[gpu.use] for gpu in node.gpus
    )
    parts = [f"{count} {words}" for words, count in sorted(uses.items())]
    number = "1 GPU" if len(node.gpus) == 1 else f"{len(node.gpus)} GPUs"
    words = f"{number}: {', '.join(parts)}" if parts else "no GPUs"
    sick = sum(gpu.is_sick for gpu in node.gpus)
    return f"{words}; {sick} sick" if sick else words


def with_commands(text: str) -> Markup:
    """The text as HTML, with what stands between backticks as code; everything in it is escaped."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before
