"""The fields of a configuration of NVIDIA's device plugin (``version: v1``), and what becomes of flags."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_ONE_OR_MORE = {"type": ["string", "array"], "items": {"type": "string"}}


def _object(**properties: Json) -> Json:
    """A mapping with these fields and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


_BOOLEAN, _TEXT = {"type": "boolean"}, {"type": "string"}

FLAGS = _object(
    migStrategy={"enum": ["none", "single", "mixed"]},
    failOnInitError=_BOOLEAN,
    restartOnDeviceUnhealthy=_BOOLEAN,
    mpsRoot=_TEXT,
    nvidiaDriverRoot=_TEXT,
    nvidiaDevRoot=_TEXT,
    gdrcopyEnabled=_BOOLEAN,
    gdsEnabled=_BOOLEAN,
    mofedEnabled=_BOOLEAN,
    useNodeFeatureAPI=_BOOLEAN,
    deviceDiscoveryStrategy=_TEXT,
    plugin=_object(
        passDeviceSpecs=_BOOLEAN,
        deviceListStrategy=_ONE_OR_MORE,
        deviceIDStrategy=_TEXT,
        cdiAnnotationPrefix=_TEXT,
        nvidiaCTKPath=_TEXT,
        containerDriverRoot=_TEXT,
        sharedDevicesAllocationPolicy={"enum": ["distributed", "packed"]},
    ),
    gfd=_object(
        oneshot=_BOOLEAN,
        noTimestamp=_BOOLEAN,
        sleepInterval={"type": ["string", "integer"]},
        outputFile=_TEXT,
        machineTypeFile=_TEXT,
    ),
)

_SHARED = {
    **_object(
        renameByDefault=_BOOLEAN,
        failRequestsGreaterThanOne=_BOOLEAN,
        resources={
            "type": "array",
            "minItems": 1,
            "items": {
                **_object(
                    name=_TEXT,
                    rename=_TEXT,
                    replicas={"type": "integer", "minimum": 1},
                    devices={
                        "type": ["string", "integer", "array"],
                        "items": {"type": ["string", "integer"]},
                    },
                ),
                "required": ["name", "replicas"],
            },
        },
    ),
    "required": ["resources"],
}

_PATTERNS = {
    "type": "array",
    "items": {**_object(pattern=_TEXT, name=_TEXT), "required": ["pattern", "name"]},
}

CONFIGURATION = _object(
    version={"enum": ["v1", ""]},
    flags={**FLAGS, "type": ["object", "null"]},
    resources={**_object(gpus=_PATTERNS, mig=_PATTERNS), "type": ["object", "null"]},
    sharing={**_object(timeSlicing=_SHARED, mps=_SHARED), "type": ["object", "null"]},
    imex=_object(channelIDs={"type": "array", "items": {"const": 0}, "maxItems": 1}, required=_BOOLEAN),
)
"""A JSON schema; what it cannot say of names and devices is checked where they are read."""

_CDI = "a device always comes through a CDI spec here"
_LABELS = "labels of nodes: devices have attributes instead (docs/claims.md)"

WITHOUT_EQUIVALENT: dict[str, tuple[tuple[Any, ...], str]] = {
    "failOnInitError": ((True,), "a node without its driver publishes nothing, and the log says why"),
    "restartOnDeviceUnhealthy": ((False,), "there is nothing to restart"),
    "mpsRoot": ((), "a folder of the node: --mps-dir of the kubelet plugin"),
    "nvidiaDriverRoot": (
        ("/",),
        "a folder of the node: --driver-root of the controller and the kubelet plugin",
    ),
    "nvidiaDevRoot": (("/",), "device nodes are looked for below --driver-root"),
    "gdrcopyEnabled": ((False,), "no GDRCopy devices are added"),
    "gdsEnabled": ((False,), "no GPUDirect Storage devices are added"),
    "mofedEnabled": ((False,), "no InfiniBand devices are added"),
    "useNodeFeatureAPI": ((False,), _LABELS),
    "deviceDiscoveryStrategy": (("auto", "nvml"), "GPUs are found with NVML alone"),
    "plugin.passDeviceSpecs": ((False,), _CDI),
    "plugin.deviceListStrategy": (("envvar", "cdi-cri", ["envvar"], ["cdi-cri"]), _CDI),
    "plugin.deviceIDStrategy": (("uuid",), _CDI),
    "plugin.cdiAnnotationPrefix": (("cdi.k8s.io/",), _CDI),
    "plugin.nvidiaCTKPath": (("/usr/bin/nvidia-ctk",), _CDI),
    "plugin.containerDriverRoot": (("/driver-root",), _CDI),
    "plugin.sharedDevicesAllocationPolicy": (
        ("packed",),
        "the scheduler fills a GPU before it takes the next: distinctAttribute spreads the shares of a claim",
    ),
    "gfd.oneshot": ((False,), _LABELS),
    "gfd.noTimestamp": ((False,), _LABELS),
    "gfd.sleepInterval": (("60s",), _LABELS),
    "gfd.outputFile": (("/etc/kubernetes/node-feature-discovery/features.d/gfd",), _LABELS),
    "gfd.machineTypeFile": (("/sys/class/dmi/id/product_name",), _LABELS),
}
"""Flag -> the values with which nothing is lost, and what to know of any other value."""
