"""Checks of the plugin's sockets: whether it answers, and whether the kubelet can find it."""

from __future__ import annotations

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, warn
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.doctor.inside.sockets import SERVES


def _plugin(seen: NodeSeen) -> Finding:
    folder = seen.places.data_dir
    lines = [f"{path}: {answer}" for path, answer in seen.plugins.items()]
    if not seen.plugins:
        return fail(
            f"no plugin has a socket in {folder}",
            "see that gpu-dra-kubeletplugin runs, with the kubelet's folder for plugins as --plugins-dir",
        )
    if SERVES not in seen.plugins.values():
        return fail(
            f"no plugin in {folder} serves, so that no claim is prepared",
            "the plugin's log says what it waits for, and what the kubelet said to it",
            lines,
        )
    silent = [line for line, answer in zip(lines, seen.plugins.values(), strict=True) if answer != SERVES]
    if silent:
        return warn(
            f"{counted(len(silent), 'socket')} beside that of the plugin that serves",
            "nothing in a rolling update; else delete the socket that nobody answers at",
            silent,
        )
    return ok(f"{counted(len(lines), 'plugin')} serves, and the kubelet has it registered")


def _registration(seen: NodeSeen) -> Finding:
    if not seen.registrations:
        return fail(
            f"no registration socket is in {seen.places.registry_dir}",
            "set --registry-dir to plugins_registry of the kubelet's root",
        )
    return ok(f"registration sockets: {', '.join(path.rpartition('/')[2] for path in seen.registrations)}")


SOCKET_CHECKS: tuple[Check[NodeSeen], ...] = (
    Check(
        "plugin",
        "the plugin's sockets, by grpc.health.v1",
        "none serves; warns of others beside it that do not",
        _plugin,
    ),
    Check(
        "registration",
        "the kubelet's folder of registration sockets",
        "no socket is there",
        _registration,
    ),
)
