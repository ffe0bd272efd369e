"""Says in words what bars show: for people who do not see them, and for everybody who points at one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup, escape

from gpuctl.web.seen.gpus import FREE, SEVERAL, GpuView, NodeView
from gpuctl.web.seen.published import MACHINE

USE_WORDS: Mapping[str, str] = {
    "whole": "whole",
    "partitions": "in partitions",
    "shares": "in shares",
    MACHINE: "for a virtual machine",
    SEVERAL: "in several forms",
    FREE: "free",
}
"""How a GPU is used, by ``GpuView.use``."""

_UNAVAILABLE = "unavailable"
_COMMAND = re.compile(r"`([^`]+)`")


def percent(part: float) -> str:
    """A part as people read it: something that is not all is never 100 %, and not nothing never 0 %."""
    whole = round(part * 100)
    if 0 < part < 1:
        whole = min(99, max(1, whole))
    return f"{whole} %"


def gpu_words(gpu: GpuView) -> str:
    """``GPU 3: in partitions, 43 % given to 3 claims; tainted gpu.nvidia.com/xid=79:NoSchedule``."""
    name = gpu.gpu if gpu.index is None else f"GPU {gpu.index}"
    taints = f"; tainted {', '.join(map(str, gpu.taints))}" if gpu.taints else ""
    return f"{name}: {use_of(gpu)}{taints}"


def use_of(gpu: GpuView) -> str:
    """``in partitions, 43 % given to 3 claims``."""
    if gpu.use == FREE:
        return _UNAVAILABLE if gpu.blocked else USE_WORDS[FREE]
    claims = "1 claim" if gpu.claims == 1 else f"{gpu.claims} claims"
    return f"{USE_WORDS.get(gpu.use, gpu.use)}, {percent(gpu.given)} given to {claims}"


def node_words(node: NodeView) -> str:
    """``8 GPUs: 3 whole, 1 in partitions, 4 free; 1 sick``."""
    uses = Counter(_UNAVAILABLE if gpu.use == FREE and gpu.blocked else gpu.use for gpu in node.gpus)
    parts = [f"{count} {USE_WORDS.get(use, use)}" for use, count in sorted(uses.items())]
    number = "1 GPU" if len(node.gpus) == 1 else f"{len(node.gpus)} GPUs"
    words = f"{number}: {', '.join(parts)}" if parts else "no GPUs"
    sick = sum(bool(gpu.taints) for gpu in node.gpus)
    return f"{words}; {sick} sick" if sick else words


def with_commands(text: str) -> Markup:
    """The text as HTML, with what stands between backticks as code; everything in it is escaped."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before
