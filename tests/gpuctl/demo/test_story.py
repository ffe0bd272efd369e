"""The demo's story on machines that differ, as it is told."""

from __future__ import annotations

import io
import re
from contextlib import closing

import pytest
from rich.console import Console

from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.story import Narrator, tell
from tests.gpuctl.approved import approve


@pytest.mark.parametrize("machine", ["hgx-h100", "gh200", "a30-quad", "a100-vgpu-guest"])
def test_the_story_is_told(machine: str) -> None:
    text = io.StringIO()
    with closing(DemoCluster("embedded", machine)) as cluster:
        tell(cluster, Narrator(Console(file=text, width=80)))

    told = re.sub(r"(?m)^ +\d+\.\d s", "  . s", text.getvalue())
    approve(f"demo/{machine}", re.sub(r"(?m) +$", "", told))
