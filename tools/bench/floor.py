"""The floor: a plugin that does the least that any plugin has to do for a claim, with the same gRPC library.

Prepare is one GET of the claim on a kept-alive connection, and the atomic writing of one journal file and one
CDI spec. Preparing again reads the spec back. Unprepare removes the spec and writes one journal file. A power
cut ends every claim, so nothing has to be on the disk before the answer. The floor checks nothing, uses no
hardware and takes no lock. No driver can be this simple: the driver's times are given as multiples of the
floor's.

It wastes nothing that the driver saves: it sends requests as the driver does, allocates a file before it
writes it, and gives unfinished specs a name that the container runtime does not read.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from driver.kube.access import Kubeconfig
from driver.kube.bounded import direct_pool
from driver.kube.kubeconfig import access_of
from driver.kube.paths import claim_path
from proto import dra_v1_pb2 as pb

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"


class Floor:
    """The two calls of the kubelet."""

    def __init__(self, kubeconfig: Path, folder: Path, cdi_dir: Path, spec: bytes) -> None:
        """``folder`` is for the journal, ``spec`` is the text of every CDI spec.

        ``cdi_dir`` is a folder that the container runtime watches: any plugin has to write there.
        """
        access = access_of(Kubeconfig((kubeconfig,)))
        if (pool := direct_pool(access.transport, access.server)[0]) is None:
            raise ValueError(f"{kubeconfig} needs a proxy")
        self._pool, authorization = pool, access.authorization() or ""
        self._headers = {"Accept": "application/json", "Authorization": authorization}
        self._folder, self._cdi_dir, self._spec = folder, cdi_dir, spec
        self._prepared: dict[str, pb.NodePrepareResourceResponse] = {}

    def prepare(
        self, request: pb.NodePrepareResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """Prepare claims; for a claim that is already prepared, only the spec is read."""
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            if claim.uid not in self._prepared:
                self._prepared[claim.uid] = self._prepare(claim)
            elif self._spec_path(claim.uid).read_bytes() != self._spec:
                write_whole(self._spec_path(claim.uid), self._spec, 0o644)
            answer.claims[claim.uid].CopyFrom(self._prepared[claim.uid])
        return answer

    def _prepare(self, claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        got = self._pool.exchange("GET", claim_path(claim.namespace, claim.name), self._headers, None, 10)
        stored = json.loads(got.data)
        write_whole(self._journal_path(claim.uid), json.dumps(stored["status"]).encode(), 0o600)
        write_whole(self._spec_path(claim.uid), self._spec, 0o644)
        answer = pb.NodePrepareResourceResponse()
        for result in stored["status"]["allocation"]["devices"]["results"]:
            answer.devices.add(
                request_names=[result["request"]],
                pool_name=result["pool"],
                device_name=result["device"],
                cdi_device_ids=[f"floor/claim={claim.uid}"],
            )
        return answer

    def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """Unprepare claims: remove the spec, write the journal file."""
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self._prepared.pop(claim.uid, None)
            self._spec_path(claim.uid).unlink(missing_ok=True)
            write_whole(self._journal_path(claim.uid), b"{}", 0o600)
            answer.claims[claim.uid].error = ""
        return answer

    def _journal_path(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"

    def _spec_path(self, uid: str) -> Path:
        return self._cdi_dir / f"floor-claim_{uid}.json"


def write_whole(path: Path, data: bytes, mode: int) -> None:
    """Replace the file at ``path`` atomically, without fsync. Raises OSError."""
    temporary = path.with_name(f".tmp-{path.stem}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.posix_fallocate(descriptor, 0, len(data))
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    temporary.rename(path)


def main(socket: str, kubeconfig: str, folder: str, cdi_dir: str, spec: str) -> None:
    """Serve until SIGTERM."""
    floor = Floor(Path(kubeconfig), Path(folder), Path(cdi_dir), Path(spec).read_bytes())
    server = grpc.server(ThreadPoolExecutor(32))
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
            floor.prepare,
            request_deserializer=pb.NodePrepareResourcesRequest.FromString,
            response_serializer=pb.NodePrepareResourcesResponse.SerializeToString,
        ),
        "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
            floor.unprepare,
            request_deserializer=pb.NodeUnprepareResourcesRequest.FromString,
            response_serializer=pb.NodeUnprepareResourcesResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    server.stop(0).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
