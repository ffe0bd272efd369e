"""The plugin's own waits fit those of the kubelet."""

from __future__ import annotations

from kubeletplugin.kubelet.health_stream import TIMEOUT_SECONDS
from kubeletplugin.process_inputs import Intervals

KUBELET_CALL_SECONDS = 45.0
"""How long the kubelet waits for NodePrepareResources (pkg/kubelet/cm/dra/plugin/dra_plugin.go)."""


def test_the_gpus_are_looked_at_twice_before_the_kubelet_takes_a_device_for_unknown() -> None:
    assert 2 * Intervals().check_seconds <= TIMEOUT_SECONDS


def test_prepare_gives_up_waiting_before_the_kubelet_does() -> None:
    assert 0 < Intervals().patience_seconds < KUBELET_CALL_SECONDS
