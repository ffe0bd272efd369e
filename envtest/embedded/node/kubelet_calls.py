"""Calls the services of a DRA plugin over its sockets, with the kubelet's deadlines and words for errors."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, cast

import grpc
from google.protobuf.message import Message

from envtest.kubelet_api import registration_v1_pb2 as registration

Answer = TypeVar("Answer", bound=Message)

# The deadlines of the real kubelet (pluginmanager and cm/dra).
INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
CALL_SECONDS = 45.0
DRA_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""The services that the kubelet can call; of these it takes the first in the *plugin's* list."""

HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The health services; here the *kubelet's* order decides."""

# Channels to one path share a connection and its back-off unless each has a pool of its own; after a restart
# of the plugin the old back-off, of up to two minutes, would hold.
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class KubeletError(Exception):
    """The kubelet could not do something for a pod; the message is in the real kubelet's words."""


def call(
    channel: grpc.Channel, method: str, request: Message, answer: type[Answer], timeout_seconds: float
) -> Answer:
    """One call. Raises grpc.RpcError."""
    ask = channel.unary_unary(
        method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
    )
    done: Answer = ask(request, timeout=timeout_seconds)
    return done


def call_plugin(
    channel: grpc.Channel, service: str, method: str, request: Message, answer: type[Answer]
) -> Answer:
    """NodePrepareResources or NodeUnprepareResources; both versions of the service share their messages.

    Raises KubeletError.
    """
    # The messages of v1 and v1beta1 are the same but for the share id, which v1beta1 lacks.
    path = f"/k8s.io.kubelet.pkg.apis.dra.{service}/{method}"
    try:
        return call(channel, path, request, answer, CALL_SECONDS)
    except grpc.RpcError as error:
        raise KubeletError(f"{method}: {rpc_text(error)}") from error


def rpc_text(error: grpc.RpcError) -> str:
    """A gRPC error as Go prints it."""
    name = "".join(word.capitalize() for word in status_code(error).name.split("_"))
    return f"rpc error: code = {name} desc = {cast('grpc.Call', error).details()}"


def status_code(error: grpc.RpcError) -> grpc.StatusCode:
    """The status of a failed call: the exception is also the grpc.Call."""
    return cast("grpc.Call", error).code()


def get_info(path: Path) -> registration.PluginInfo:
    """Ask the plugin behind a registration socket what it is. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS) as channel:
        method = "/pluginregistration.Registration/GetInfo"
        return call(channel, method, registration.InfoRequest(), registration.PluginInfo, INFO_SECONDS)


def notify(path: Path, error: str) -> None:
    """Tell the plugin that it is registered, or why not. Raises grpc.RpcError."""
    status = registration.RegistrationStatus(plugin_registered=not error, error=error)
    method = "/pluginregistration.Registration/NotifyRegistrationStatus"
    with grpc.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS) as channel:
        call(channel, method, status, registration.RegistrationStatusResponse, NOTIFY_SECONDS)


def reason_to_refuse(info: registration.PluginInfo, known_endpoints: frozenset[str]) -> str:
    """Why a plugin cannot be used, in the kubelet's words; empty when it can."""
    if info.type != "DRAPlugin":
        return f"no handler registered for plugin type: {info.type}"
    if not set(DRA_SERVICES) & set(info.supported_versions):
        listed = " ".join(info.supported_versions)
        return (
            f"invalid supported gRPC versions of DRA driver plugin {info.name} at endpoint {info.endpoint}: "
            f"none of services supported by the plugin ([{listed}]) are supported by the kubelet "
            f"([{' '.join(DRA_SERVICES)}])"
        )
    if info.endpoint in known_endpoints:
        return f"endpoint {info.endpoint} already registered for DRA driver plugin {info.name}"
    return ""


def service_of(info: registration.PluginInfo) -> str:
    """The DRA service that is called."""
    return next(one for one in info.supported_versions if one in DRA_SERVICES)


def health_service_of(info: registration.PluginInfo) -> str | None:
    """The health service that is watched, None when the plugin has none."""
    return next((one for one in HEALTH_SERVICES if one in info.supported_versions), None)
