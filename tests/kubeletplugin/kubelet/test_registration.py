"""The kubelet learns what the plugin serves, and the plugin keeps what the kubelet said."""

import io
import json
import threading
from pathlib import Path

import structlog

from driver.process.log import configure
from kubeletplugin.kubelet.registration import Refused, Registered, Registration
from proto import registration_v1_pb2 as pb
from tests.eventually import WAIT_SECONDS
from tests.kubeletplugin.fake_kubelet import FakeKubelet, Plugin

SERVICE = "/pluginregistration.Registration"


def get_info(kubelet: FakeKubelet) -> pb.PluginInfo:
    return kubelet.call(f"{SERVICE}/GetInfo", pb.InfoRequest(), pb.PluginInfo)


def notify(kubelet: FakeKubelet, *, registered: bool, error: str = "") -> None:
    status = pb.RegistrationStatus(plugin_registered=registered, error=error)
    kubelet.call(f"{SERVICE}/NotifyRegistrationStatus", status, pb.RegistrationStatusResponse)


def test_the_kubelet_is_told_driver_socket_and_versions_newest_first(plugin: Plugin) -> None:
    registration = plugin.sockets.registration
    assert f"never connected to {plugin.registration_socket}: check" in registration.why_not()
    with FakeKubelet(plugin.registration_socket) as kubelet:
        info = get_info(kubelet)
    assert f"could not use the service socket {plugin.service_socket}" in registration.why_not()
    assert (info.type, info.name, info.endpoint) == (
        "DRAPlugin",
        "gpu.nvidia.com",
        str(plugin.service_socket),
    )
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


def test_a_registration_wakes_those_who_wait(plugin: Plugin) -> None:
    waited: list[bool] = []
    registration = plugin.sockets.registration
    waiter = threading.Thread(
        target=lambda: waited.append(registration.wait_registered(WAIT_SECONDS * 10)), daemon=True
    )
    waiter.start()
    with FakeKubelet(plugin.registration_socket) as kubelet:
        notify(kubelet, registered=True)
    waiter.join(WAIT_SECONDS)
    assert waited == [True]
    assert registration.outcome == Registered()
    assert registration.why_not() == ""


def test_a_refusal_keeps_the_kubelets_reason_until_it_registers(plugin: Plugin) -> None:
    registration = plugin.sockets.registration
    with FakeKubelet(plugin.registration_socket) as kubelet:
        notify(kubelet, registered=False, error="endpoint is taken")
        refused = registration.outcome
        assert registration.why_not() == "the kubelet refused it: endpoint is taken"
        assert not registration.wait_registered(0.0)
        notify(kubelet, registered=True)
    assert (refused, registration.outcome) == (Refused("endpoint is taken"), Registered())


def a_registration() -> Registration:
    return Registration("gpu.nvidia.com", Path("/plugins/dra.sock"), Path("/registry/reg.sock"))


def test_the_log_says_why_when_the_registration_is_late() -> None:
    log = io.StringIO()
    configure("info", log)
    a_registration().explain_when_late(late_seconds=0.0)
    structlog.reset_defaults()
    line = json.loads(log.getvalue())
    assert (line["level"], line["event"]) == ("error", "not registered with the kubelet")
    assert "/registry/reg.sock" in line["why"]


def test_nothing_is_said_when_the_plugin_stops_before_it_is_late() -> None:
    log = io.StringIO()
    configure("info", log)
    registration = a_registration()
    registration.close()
    registration.explain_when_late(late_seconds=WAIT_SECONDS)
    structlog.reset_defaults()
    assert log.getvalue() == ""
