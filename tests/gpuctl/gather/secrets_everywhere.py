"""Plants secrets in all that a report is made of: each text that begins with ``SECRET`` must not come out."""

import base64
import itertools
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import Any

from envtest.embedded.server import ContainerLog
from tests.clusters import EmbeddedApiServer, Object, boot_folder, plan_node
from tests.gpuctl.answering import answering
from tests.gpuctl.doctor.clusters import NODE, daemon_set, driver_pod, node, run_pod, webhook

SECRET = "zq7"  # noqa: S105 - it keeps nothing
"""How each of the secrets begins."""

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
_numbers = itertools.count(1)


def secret() -> str:
    """A secret that has not been before."""
    return f"{SECRET}-{next(_numbers)}"


def marked(item: Object) -> Object:
    """The object with secrets in its annotations and in a label of its owner's."""
    item["metadata"]["annotations"] = {"example.com/password": secret(), "note": f"it is {secret()}"}
    item["metadata"].setdefault("labels", {})["team-key"] = secret()
    return item


def opaque(driver: str, **parameters: Any) -> Object:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def claim(name: str, device_class: str, *config: Object) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    return marked(
        {"metadata": {"name": name}, "spec": {"devices": {"requests": [request], "config": [*config]}}}
    )


def device_class(name: str, driver: str, *config: Object) -> Object:
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return marked({"metadata": {"name": name}, "spec": {"selectors": [selector], "config": [*config]}})


def fill_cluster(server: EmbeddedApiServer) -> None:
    """Objects of the driver and of others, with secrets wherever a text can stand."""
    server.create("/api/v1/nodes", marked(node()))
    for item in plan_node("hgx-h100", NODE, None).slices:
        server.create("/apis/resource.k8s.io/v1/resourceslices", marked(item))
    _create_workloads(server)
    _create_claims(server)
    private = f"-----BEGIN PRIVATE KEY-----\n{secret()}\n-----END PRIVATE KEY-----\n"
    server.create(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", marked(webhook(private))
    )
    for kind in ("secrets", "configmaps"):
        data = base64.b64encode(secret().encode()).decode() if kind == "secrets" else secret()
        item = {"metadata": {"name": "gpu-dra-webhook-tls"}, "data": {"tls.key": data}}
        server.create(f"/api/v1/namespaces/gpu-dra/{kind}", item)
    text = f"version: v1\nrules: []\n# token: {secret()}\n"
    config = {"metadata": {"name": "gpu-dra-node-config"}, "data": {"config.yaml": text}}
    server.create("/api/v1/namespaces/gpu-dra/configmaps", marked(config))
    about = {"kind": "Node", "name": NODE, "namespace": "default"}
    for component, message in (("gpu-dra-controller", f"token={secret()} is refused"), ("others", secret())):
        by = {"reportingComponent": component, "reportingInstance": NODE}
        told = {"involvedObject": about, "type": "Warning", "reason": "GpuWithheld", "message": message, **by}
        server.create("/api/v1/namespaces/default/events", {"metadata": {"name": f"{component}.1"}, **told})


def _create_workloads(server: EmbeddedApiServer) -> None:
    variables: list[Object] = [
        {"name": "API_PASSWORD", "value": secret()},
        {"name": "GPU_DRA_OWN", "value": secret()},
        {"name": "GPU_DRA_NODE_NAME", "value": NODE},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "named", "key": "k"}}},
    ]
    server.create("/api/v1/namespaces", {"metadata": {"name": "gpu-dra"}})
    pod = driver_pod("kubeletplugin")
    pod["spec"]["containers"][0] |= {"env": variables, "args": [f"--own={secret()}", "--other", secret()]}
    headers = [{"name": "Authorization", "value": secret()}]
    pod["spec"]["containers"][0]["livenessProbe"] = {
        "httpGet": {"path": "/livez", "port": 1, "httpHeaders": headers}
    }
    pod["spec"]["volumes"] = [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"pw": secret()}}}]
    pod["spec"]["containers"].append(
        {"name": "sidecar", "image": "x", "command": ["sh", "-c", f"login {secret()}"], "env": variables}
    )
    ended = {"message": f"password: {secret()}", "exitCode": 1}
    pod["status"]["containerStatuses"][0] |= {"restartCount": 1, "lastState": {"terminated": ended}}
    run_pod(server, marked(pod))
    foreign = marked(driver_pod("x"))
    foreign["spec"]["containers"] = [{"name": "c", "image": "x", "env": variables}]
    run_pod(server, foreign)
    workload = daemon_set("kubeletplugin")
    template = workload["spec"]["template"]
    template["metadata"] = {"annotations": {"a": secret()}, "labels": {"app": "gpu"}}
    template["spec"]["containers"][0]["env"] = variables
    workload["spec"]["selector"] = {"matchLabels": {"app": "gpu"}}
    server.create("/apis/apps/v1/namespaces/gpu-dra/daemonsets", marked(workload))


def _create_claims(server: EmbeddedApiServer) -> None:
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    server.create(
        classes, device_class("gpu.nvidia.com", "gpu.nvidia.com", opaque("gpu.nvidia.com", pw=secret()))
    )
    server.create(classes, device_class(f"of-others-{secret()}", "nic.example.com"))
    server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    own = opaque("gpu.nvidia.com", kind="GpuConfig", token=secret())
    other = opaque("nic.example.com", key=secret())
    good = opaque("gpu.nvidia.com", apiVersion="resource.nvidia.com/v1beta1", kind="GpuConfig")
    stored = server.create(CLAIMS.format("team"), claim("mine", "gpu.nvidia.com", own, good, other))
    server.create(
        CLAIMS.format("team"), claim(f"theirs-{secret()}", "nic", opaque("nic.example.com", key=secret()))
    )
    path = f"{CLAIMS.format('team')}/mine"
    results = [
        {"request": "gpu", "driver": driver, "pool": f"{NODE}/{driver}", "device": "d"}
        for driver in ("gpu.nvidia.com", "nic.example.com")
    ]
    told = [
        {name: value for name, value in one.items() if name != "request"} | {"data": data}
        for one, data in zip(results, ({"uuid": "MIG-1"}, {"mac": secret()}), strict=True)
    ]
    allocated = {"allocation": {"devices": {"results": results}}, "devices": told}
    server.replace(f"{path}/status", {**stored, "status": allocated})


def log_with_secrets() -> ContainerLog:
    """The log of a container that says too much."""
    log = ContainerLog(Condition())
    log.print('{"level": "info", "event": "claim prepared"}')
    log.print(f'{{"event": "asked", "authorization": "Bearer {secret()}"}}')
    log.print(f"password={secret()}")
    log.print(f"eyJhbGciOiJSUzI1NiJ9.{SECRET}abc.{SECRET}def")
    return log


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of a node, and the variables by which they are found."""

    environment: dict[str, str]
    command_line: list[str]


def fill_node(folder: Path, metrics_port: int) -> NodeFiles:
    """Files of the driver and of others, with secrets in all of them."""
    data, cdi, mps = folder / "plugins/gpu.nvidia.com", folder / "cdi", folder / "mps"
    boot = boot_folder(data)
    ledger = boot / "memory"
    own = (boot / "journal/unreadable", boot / "sharing", ledger)
    for path in (*own, cdi, mps / "gpu-1", folder / "registry"):
        path.mkdir(parents=True)
    uid = "11111111-2222-3333-4444-555555555555"
    texts = {
        boot / f"journal/{uid}.json": {"schema": 1, "entry": {"uid": uid, "token": secret()}},
        boot / "sharing/gpu-1.json": {"group": "gpu-1", "password": secret()},
        ledger / f"{uid}_0000:1b:00.0.json": {"parts": [], "token": secret()},
        ledger / "notes.json": {"token": secret()},
        data / "webhook.key": secret(),
        cdi / f"k8s.gpu.nvidia.com-claim_{uid}.json": {"devices": [], "containerEdits": {"secret": secret()}},
        cdi / "nic.example.com-claim_1.json": {"devices": [], "note": secret()},
        mps / "gpu-1/daemon.json": {"name": "gpu-1", "credentials": secret()},
        mps / "gpu-1/pipe": secret(),
    }
    for file, content in texts.items():
        file.write_text(json.dumps(content))
    (boot / "journal/unreadable/old").write_text(f"{{ torn, token: {secret()}")
    (cdi / "k8s.gpu.nvidia.com-claim_22222222.json").symlink_to(data / "webhook.key")
    names = ("plugins", "registry", "cdi", "mps")
    environment = {f"GPU_DRA_{name.upper()}_DIR": str(folder / name) for name in names}
    environment |= {"GPU_DRA_NVML": "fake:hgx-h100", "GPU_DRA_HOST_ROOT": str(folder)}
    environment["GPU_DRA_PASSWORD"] = secret()
    line = ["gpu-dra-kubeletplugin", f"--own={secret()}", f"--metrics-addr=127.0.0.1:{metrics_port}"]
    return NodeFiles(environment, line)


def metrics_with_secrets() -> AbstractContextManager[int]:
    """A port at which metrics are served that hold what they should not."""
    text = f'gpu_dra_published_devices 8\nx{{url="http://user:{secret()}@host/"}} 1\n'
    return answering({"/metrics": text})
