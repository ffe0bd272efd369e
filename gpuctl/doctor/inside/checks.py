"""All checks of a node in their order; here those of driver, container runtime, sockets and fabric."""

from __future__ import annotations

from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Check, Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.inside.claim_checks import CLAIM_CHECKS
from gpuctl.doctor.inside.machine_checks import EDITION_CHECKS, MACHINE_CHECKS
from gpuctl.doctor.inside.memory_checks import MEMORY_CHECKS
from gpuctl.doctor.inside.runtime_files import DEFAULT_FOLDERS
from gpuctl.doctor.inside.seen import NodeSeen, RuntimeConfig
from gpuctl.doctor.inside.sockets import SERVES
from kubeletplugin.devices.host.gpu_nodes import REQUIRED_CONTROL_NODES

_NO_GPU = "no NVIDIA GPU is on the node's PCI bus"


@check
def _driver_root(seen: NodeSeen) -> Finding:
    """Where NVIDIA drivers may be installed, and the libraries and programs of the one in use.

    Fails if there is none; warns if nvidia-smi is missing, or if there are several.
    """
    files = seen.driver_files
    passed_over = [f"{one.path} ({one.name}): {one.reason}" for one in seen.looked if one.reason]
    if isinstance(files, Unread):
        require(seen.gpus_on_bus, _NO_GPU)
        return fail(
            files.why,
            "install the NVIDIA driver, or set --driver-root of the driver's processes to its folder",
            passed_over,
        )
    root = next((f"{one.path} ({one.name})" for one in seen.looked if not one.reason), "the driver root")
    # The plugin sets time-slices and compute modes by calling nvidia-smi.
    if "nvidia-smi" not in {path.rpartition("/")[2] for path in files.binaries}:
        return warn(
            f"driver {files.version} below {root} has no nvidia-smi, which sets time-slices",
            "install the driver's programs if GPUs are to be shared",
        )
    lying = [f"{one.path} ({one.name}): {one.version}" for one in seen.looked if one.version]
    if len(lying) > 1:
        return warn(
            f"{counted(len(lying), 'NVIDIA driver')} are installed, but only one can work",
            "keep one: remove the host's, or the GPU operator's driver container (driver.enabled=false)",
            lying,
        )
    return ok(
        f"driver {files.version} below {root}, {counted(len(files.libraries), 'library', 'libraries')}, "
        f"{counted(len(files.binaries), 'program')}",
        passed_over,
    )


@check
def _nvml(seen: NodeSeen) -> Finding:
    """Whether NVML loads, and what it reports about the GPUs.

    Fails if it does not load or answer; warns about GPUs that do not report everything.
    """
    if isinstance(seen.inventory, Unread):
        require(seen.gpus_on_bus, _NO_GPU)
        return fail(
            seen.inventory.why,
            "check with lsmod and the kernel log that the module is loaded; `nvidia-smi` has to work first",
        )
    found, version = seen.inventory, seen.inventory.driver_version or "of an unknown version"
    if not found.gpus and not found.unread:
        return warn(f"NVML, driver {version}, reports no GPU", "nothing, if the node has none")
    problems = [
        f"{gpu.pci}: {one.call}: {one.message}"
        for gpu in found.gpus
        for one in gpu.problems
        if one.reason != "unlicensed"  # the check vgpu-license
    ]
    problems += [f"{one.call}: {one.message}" for one in found.problems]
    problems += [f"{one.pci or 'a GPU'}: it was never identified" for one in found.unread]
    if problems:
        return warn(
            f"NVML, driver {version}, cannot read everything about {counted(len(found.gpus), 'GPU')}",
            "look for Xid messages in the kernel log; the taints of the devices say what they mean",
            problems,
        )
    return ok(f"NVML, driver {version}, reports {counted(len(found.gpus), 'GPU')}")


@check
def _same_driver(seen: NodeSeen) -> Finding:
    """Whether the loaded kernel module and the libraries have the same version.

    Fails if they differ.
    """
    module = require(seen.kernel_driver, "sysfs does not show the version of the loaded kernel module")
    version = require(seen.driver_files).version
    # The kernel module refuses libraries of any other version (NVML_ERROR_LIB_RM_VERSION_MISMATCH).
    if module != version:
        return fail(
            f"the kernel module is {module}, the libraries are {version}",
            "end the pods with GPUs, then load the module of the installed driver, or restart the node",
        )
    return ok(f"kernel module and libraries are {version}")


@check
def _device_nodes(seen: NodeSeen) -> Finding:
    """The device nodes: `/dev/nvidiactl`, UVM, one for each GPU, and MIG.

    Fails if one is missing, apart from those of MIG.
    """
    gpus = () if isinstance(seen.inventory, Unread) else seen.inventory.gpus
    require(gpus or seen.gpus_on_bus, _NO_GPU)
    # udev makes none of these: the NVIDIA driver's user space does, when somebody calls nvidia-modprobe.
    wanted = [*REQUIRED_CONTROL_NODES, *(f"/dev/nvidia{gpu.minor}" for gpu in gpus)]
    missing = [path for path in wanted if path not in seen.device_nodes]
    if missing:
        return fail(
            f"{counted(len(missing), 'device node')} of {len(wanted)} missing",
            "load the NVIDIA kernel modules and run nvidia-modprobe -u -c 0, or nvidia-smi, on the node",
            missing,
        )
    require(gpus, "the control nodes exist; the GPUs are not known")
    caps = sum(path.startswith("/dev/nvidia-caps/") for path in seen.device_nodes)
    return ok(f"all {len(wanted)} device nodes exist, and {caps} of MIG capabilities")


@check
def _cgroups(seen: NodeSeen) -> Finding:
    """The version of cgroups.

    Never fails; warns about version 1.
    """
    if require(seen.cgroups, f"no control groups found below {seen.places.host_root}") == 1:
        return warn(
            "the node has control groups of version 1",
            "Kubernetes is dropping them: use a system with version 2",
        )
    return ok("control groups are version 2")


@check
def _runtime_cdi(seen: NodeSeen) -> Finding:
    """Whether CDI is on in the configuration of containerd or CRI-O, also in those of k3s, RKE2, k0s and
    MicroK8s.

    Fails if it is off; warns if the file does not say, unless it is of containerd 2.
    """
    if not seen.runtimes:
        return skipped(
            f"no configuration of containerd or CRI-O found below {seen.places.host_root}",
            "run `gpuctl doctor --local` as root of the node, or give --host-root",
        )
    wrong = [f"{one.file}: {one.wrong}" for one in seen.runtimes if one.wrong]
    if wrong:
        return warn(
            "a configuration of the container runtime cannot be read", "correct it, or run as root", wrong
        )
    # containerd 1.7 with CDI off passes over the devices without a word: the container runs, without a GPU.
    off = [one.file for one in seen.runtimes if one.cdi is False]
    if off:
        return fail(
            f"CDI is off in {', '.join(off)}: containers get no GPU",
            "set enable_cdi = true, and restart containerd",
        )
    silent = [one.file for one in seen.runtimes if one.cdi is None and not one.since_2]
    if silent:
        return warn(
            f"{', '.join(silent)} does not say whether CDI is on; in containerd 1.7 it is off",
            "set enable_cdi = true, unless it is containerd 2.0 or newer",
        )
    return ok(f"CDI is on by {', '.join(one.file for one in seen.runtimes)}")


@check
def _cdi_folder(seen: NodeSeen) -> Finding:
    """The folder of CDI specs.

    Fails if it is missing or not writable, or the runtime does not read it.
    """
    folder = seen.places.cdi_dir
    if isinstance(seen.cdi_writable, Unread):
        return fail(seen.cdi_writable.why, "mount the folder that the runtime reads, and set --cdi-dir to it")
    if not seen.cdi_writable:
        return fail(f"{folder} cannot be written to", "mount it writable: no claim can be prepared")
    elsewhere = [one for one in seen.runtimes if not one.wrong and not _reads(one, str(folder))]
    if elsewhere:
        return fail(
            f"the container runtime does not read {folder}",
            "set --cdi-dir of the plugin to one of the folders that the runtime reads",
            [f"{one.file}: {', '.join(one.folders or DEFAULT_FOLDERS)}" for one in elsewhere],
        )
    if not seen.runtimes:
        return ok(f"{folder} can be written to; whether the runtime reads it cannot be checked from here")
    return ok(f"{folder} can be written to, and the container runtime reads it")


def _reads(runtime: RuntimeConfig, folder: str) -> bool:
    folders = DEFAULT_FOLDERS if runtime.folders is None else runtime.folders
    return _plain(folder) in map(_plain, folders)


def _plain(folder: str) -> str:
    """One name for a folder that has two: /var/run is a link to /run."""
    return folder.rstrip("/").replace("/var/run/", "/run/", 1)


@check
def _plugin(seen: NodeSeen) -> Finding:
    """The plugin's sockets, by grpc.health.v1, and the kubelet's folder of registration sockets.

    Fails if none serves, or none is registered; warns about further sockets that do not serve.
    """
    folder = seen.places.data_dir
    lines = [f"{path}: {answer}" for path, answer in seen.plugins.items()]
    if not seen.plugins:
        return fail(
            f"no plugin has a socket in {folder}",
            "check that gpu-dra-kubeletplugin runs, with the kubelet's folder for plugins as --plugins-dir",
        )
    if not seen.registrations:
        return fail(
            f"no registration socket in {seen.places.registry_dir}",
            "set --registry-dir to the folder plugins_registry below the kubelet's root",
        )
    if SERVES not in seen.plugins.values():
        return fail(
            f"no plugin in {folder} serves, so no claim is prepared",
            "the plugin's log says what it waits for, and what the kubelet answered",
            lines,
        )
    # In a rolling update two plugins have a socket, each of its own name.
    silent = [line for line, answer in zip(lines, seen.plugins.values(), strict=True) if answer != SERVES]
    if silent:
        return warn(
            f"{counted(len(silent), 'socket')} without a serving plugin, next to one that serves",
            "nothing during a rolling update; else delete the socket without a plugin",
            silent,
        )
    return ok(f"{counted(len(lines), 'plugin')} serves and is registered with the kubelet")


@check
def _fabric(seen: NodeSeen) -> Finding:
    """The fabric manager, if it listens, and whether the partitions that the plugin activated are active.

    Fails if it does not answer, or a partition of a claim is not active; warns about partitions that others
    activated.
    """
    partitions, noted = seen.fabric.partitions, seen.fabric.noted
    if partitions is None and not noted:
        return skipped("no fabric manager with a shared fabric listens at a socket")
    if partitions is None or isinstance(partitions, Unread):
        why = "no fabric manager listens" if partitions is None else partitions.why
        return fail(
            f"the fabric manager cannot be asked, so GPUs get no NVLinks: {why}",
            "see that nvidia-fabricmanager runs, configured as docs/topology.md says",
        )
    # Somebody else may activate partitions too, with fmpm for example; the plugin has no record of these.
    active = {one.number for one in partitions if one.active}
    lost, foreign = sorted(noted - active), sorted(active - noted)
    if lost:
        return fail(
            f"{counted(len(lost), 'fabric partition')} of claims not active",
            "the plugin activates them within half a minute; else its log says what is in the way",
            [f"partition {number}" for number in lost],
        )
    if foreign:
        return warn(
            f"{counted(len(foreign), 'fabric partition')} active without a claim of this node",
            "deactivate them (fmpm -d NUMBER) if their GPUs are to be handed out",
            [f"partition {number}" for number in foreign],
        )
    return ok(f"{counted(len(partitions), 'fabric partition')}, {len(active)} active, each for a claim")


@check
def _imex(seen: NodeSeen) -> Finding:
    """Whether a node of an NVLink clique is ready for IMEX channels: its nvidia-imex, and the NVIDIA driver.

    Fails if its GPUs are not all in one clique; warns if claims for channels would wait.
    """
    gpus = require(seen.inventory).gpus
    cliques = sorted({str(gpu.fabric_clique) for gpu in gpus if gpu.fabric_clique})
    require(cliques, "no GPU is in an NVLink clique of several nodes")
    outside = [str(gpu.pci) for gpu in gpus if not gpu.fabric_clique]
    if outside or len(cliques) > 1:
        return fail(
            "the GPUs of this node are not all in one NVLink clique, so its pods cannot be in a gang",
            "see the fabric's state with nvidia-smi -q, and the partitions of the rack's switches",
            [*cliques, *(f"in none: {pci}" for pci in outside)],
        )
    if seen.no_channels is not None:
        return warn(seen.no_channels.what, seen.no_channels.way_out)
    return ok(f"nvidia-imex is ready, in the NVLink clique {cliques[0]}")


FABRIC_CHECKS = (_fabric, _imex)

INSIDE: tuple[Check[NodeSeen], ...] = (
    *(_driver_root, _nvml, _same_driver, _device_nodes),
    *FABRIC_CHECKS,
    *EDITION_CHECKS,
    *(_cgroups, _runtime_cdi, _cdi_folder, _plugin),
    *CLAIM_CHECKS,
    *MEMORY_CHECKS,
    *MACHINE_CHECKS,
)
