"""Prepares a claim of each kind on one idle GPU with the real driver, and brings the GPU back.

The driver's processes run on an embedded cluster in this process. Everything that they write is in a
temporary folder, except what they change of the GPU; the undo record has that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from driver.errors import DriverError
from driver.hardware.gpu import Gpu
from driver.hardware.pci_view import iommu_group_of
from driver.nvml.pci_address import PciAddress
from envtest.client import paths
from envtest.client.errors import ClusterError
from envtest.client.waiting import wait_until
from envtest.embedded.cluster import FOLDER_PREFIX, EmbeddedCluster
from envtest.embedded.node.child_processes import RunningProcess, StartProcess, start_process
from envtest.embedded.node.kubelet import KubeletTimes
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.calls import knows_limits
from gpuctl.demo.brisk import BRISK
from gpuctl.demo.driver_node import DriverProcesses, apply_manifests, played_hook
from gpuctl.demo.ending import signals_end_it_once
from gpuctl.demo.watchdog import watched_folder
from gpuctl.doctor.check import Finding, Result, fail
from gpuctl.doctor.inside.places import Places
from gpuctl.verify.change import guard
from gpuctl.verify.change.claims import Bench, Limits, log_tails, tried_all
from gpuctl.verify.change.container import containers_for
from gpuctl.verify.change.gpu_state import GpuState, gpu_tools, read_state
from gpuctl.verify.change.kinds import kinds_of, node_config
from gpuctl.verify.change.undo import CONTAINERS, LINKS, PLACE, UndoRecord, record_path, restore, unfinished
from gpuctl.verify.subject import Figure, Found, Subject
from kubeletplugin.claims.cdi.hook import IMAGE_MEMORY_HOOK

Object = dict[str, Any]

_TIMES = KubeletTimes(scan=0.1, prepare_retry=(1.0, 2.0), unprepare_retry=1.0)
"""The kubelet's intervals: shorter than the real one's, since somebody waits for the report."""
_NO_GPU = "end what uses a GPU, and run this again"


def verify_changes(
    subject: Subject,
    say: Callable[[str], None],
    limits: Limits | None = None,
    start: StartProcess = start_process,
) -> Found:
    """Try claims of every kind on one idle GPU; afterwards everything is as before.

    Every problem is a result. Each step is told before it is done. ``start`` starts the driver's processes.
    Ctrl-C and SIGTERM end it by KeyboardInterrupt, after everything was brought back.
    """
    chosen = _chosen_gpu(subject)
    if isinstance(chosen, Finding):
        return Found((_result("may change", chosen),))
    say(f"GPU {chosen.pci} is used for claims of every kind")
    results: list[Result] = []
    figures: list[Figure] = []
    undo = False
    with signals_end_it_once() as ending:
        try:
            record = _recorded(subject.places, chosen)
            undo = True
            tried = _tried(subject, chosen, record, say, (limits or Limits(), start))
            results, figures = tried
        except (DriverError, ClusterError, OSError) as error:
            results.append(_result("the driver runs", _failure(error)))
        finally:
            ending()
            if undo:
                results += restore(subject.places, say)
    return Found(tuple(results), tuple(figures))
