"""Asks the kubelet plugin of this node, at its socket, about a GPU or to reset it. Only root may."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc

from driver.errors import ConfigError
from gpuctl.heal.steps import HealStep, UsingProcess
from proto import node_state_v1_pb2 as v1

_METHOD = "/gpu.nvidia.com.nodestate.v1.NodeState/Heal"
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_RESET_SECONDS = 300.0
"""For what comes after the waiting: locks, the end of NVML sessions, the reset, and reading the GPU."""

_NOT_HERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED)


def heal_steps(folder: Path, gpu: str, *, reset: bool, wait_seconds: float) -> Iterator[HealStep]:
    """The steps of the plugin with a socket in the folder; raises ConfigError if no plugin answers.

    The heal is cancelled when a pipe at this process's stdin ends: the caller is gone.
    """
    request = v1.HealRequest(gpu=gpu, reset=reset, wait_seconds=int(wait_seconds))
    why = f"it has no socket in {folder}"
    # A plugin that died leaves its socket behind, and in a rolling update there are two: one of them answers.
    for path in sorted(folder.glob("dra*.sock")):
        has_begun = False
        try:
            for step in _asked(path, request, wait_seconds):
                has_begun = True
                yield step
        except grpc.RpcError as error:
            if has_begun or error.code() not in _NOT_HERE:
                raise ConfigError(
                    f"the kubelet plugin broke off at {path}: {error.code().name}",
                    "see its log, then check the GPU",
                ) from error
            why = (
                "its version cannot heal GPUs"
                if error.code() == grpc.StatusCode.UNIMPLEMENTED
                else f"it does not answer at {path}"
            )
        except PermissionError as error:
            raise ConfigError(f"this user may not use {path}", "run it as root on the node") from error
        else:
            return
    raise ConfigError(f"the kubelet plugin of this node cannot be asked: {why}", "check that it runs")


def _asked(path: Path, request: v1.HealRequest, wait_seconds: float) -> Iterator[HealStep]:
    # Connecting to a Unix socket takes the right to write to it; gRPC would only say that nobody answers.
    if not os.access(path, os.W_OK):
        raise PermissionError(path)
    with grpc.insecure_channel(f"unix:{path.absolute()}", options=_OPTIONS) as channel:
        ask: grpc.UnaryStreamMultiCallable[bytes, v1.HealProgress] = channel.unary_stream(
            _METHOD, response_deserializer=v1.HealProgress.FromString
        )
        call = ask(request.SerializeToString(), timeout=wait_seconds + _RESET_SECONDS)
        threading.Thread(target=_cancel_at_end_of_stdin, args=(call,), daemon=True).start()
        yield from map(_read, call)


def _cancel_at_end_of_stdin(call: grpc.Call) -> None:
    """Cancel the call at the end of a pipe at stdin, which kubectl exec -i gives the program."""
    # kubectl's own death ends no program in a pod; only its stdin ends. A terminal or a file says nothing.
    try:
        if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
            while os.read(sys.stdin.fileno(), 4096):
                pass
            call.cancel()
    except (OSError, ValueError):
        return  # stdin is closed


def _read(message: v1.HealProgress) -> HealStep:
    return HealStep(
        message.step,
        tuple(message.pci_bus_ids),
        tuple(f"{one.namespace}/{one.name}" if one.name else one.uid for one in message.claims),
        tuple(UsingProcess(one.process_id, one.name, one.pod_uid or None) for one in message.processes),
        message.message or None,
    )
