"""What many tests need of the driver and the fake NVIDIA stack; if a module moves, this file changes."""

from driver.claims.opaque import GpuConfig, MalformedConfig, MigDeviceConfig, decode_any
from driver.devices import taints
from driver.devices.device import AttributeValue, CounterSet, Device, RequestPolicy, Taint, Version
from driver.devices.gpu_policy import GpuPolicy, MigOffer, SharedOffer
from driver.devices.limits import device_faults
from driver.devices.names import DRIVER_NAME, gpu_device_name, parse_gpu_device_name, pool_name, unshared_name
from driver.devices.node_state import BlockedPlacement, Healed, NodeState
from driver.devices.region import Region
from driver.devices.sharing import SharedForm
from driver.devices.taints import TAINT_BLOCKED, TAINT_DEVICE_PLUGIN, TAINT_RESET, TAINT_UNLICENSED
from driver.errors import (
    ApiError,
    ClaimBlocked,
    ClaimRefused,
    ConfigError,
    CudaError,
    DeviceHeld,
    DriverError,
    NodeIncomplete,
    NvmlError,
    StorageError,
)
from driver.event_reasons import EventReason
from driver.fabric.api import FabricError, NoFabricManager
from driver.hardware.functions import IommuGroup, PciFunction, PciView
from driver.hardware.gate import LetGo
from driver.hardware.gpu import Gpu, GpuMig, Inventory, Problem
from driver.hardware.inventory import Discovery
from driver.hardware.pci import bound_driver
from driver.hardware.pci_view import iommu_group_of, read_function
from driver.hardware.vgpu_places import MadeVgpu, made_on
from driver.health.health_rules import HealthRules
from driver.health.judge import Incident, verdicts_of
from driver.health.verdict import Health, health_of, taints_of, with_verdicts
from driver.health.xids import XID_CLASSES, XIDS, XidClass
from driver.kinds.partition.names import (
    PartitionName,
    parse_partition_name,
    partition_device_name,
    profile_slug,
)
from driver.nvml.api import (
    NODE_CALLS,
    Code,
    DriverNotLoaded,
    GpuLost,
    InstanceNotFound,
    NoMemoryLimits,
    NotSupported,
    NvLinkEnd,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
    NvmlTimeout,
    SessionLost,
)
from driver.nvml.deadline import Guard, Watch
from driver.nvml.health.calls import FabricHealth, GpuEvent, RemappedRows
from driver.nvml.memory_limits import NO_LIMIT_BYTES, Cgroup, MemoryLimits
from driver.nvml.mig import ComputeInstance, GpuInstance, GpuInstanceProfile, MigDevice, Placement
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.nvml.real import RealNvml
from driver.nvml.use.calls import ProcessUse
from driver.nvml.vgpu import LicensableFeature
from driver.policy.config import load_config, parse_config, parse_file
from driver.policy.offers import Offers, node_offers
from driver.policy.rules import NodeConfig, Rule
from driver.roots.driver_roots import DriverRoots
from driver.slices.specs import lay_out
from fakegpu.cuda.compiled import compile_libcuda
from fakegpu.cuda.fake_cuda import FakeCuda
from fakegpu.driver_files.driver_root import build_device_nodes, build_driver_root, build_sysfs
from fakegpu.driver_files.host_layouts import HOST_LAYOUTS, lay_driver
from fakegpu.machine.capabilities import VISIBLE_NODES, access_minor
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.mig_profiles import MigCatalogue, known_catalogues, load_catalogue
from fakegpu.machine.mig_state import MigState, gpu_instance_refusal, with_gpu_instance
from fakegpu.machine.spec import INSTANCE_TYPES, MACHINES, instance_types, known_machines, load_machine
from fakegpu.memory.cuda import FakeCudaClient, OutOfMemory
from fakegpu.mps.client import CudaProcess
from fakegpu.nvml.fake_nvml import FakeDevice, FakeNvml
from fakegpu.nvml.mig_calls import MIG_CHANGES
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.kernel import FakeKernel
