"""What most tests need of clusters, controller and commands; if a module moves, only this file changes."""

from controller.health.incident_store import IncidentStore
from controller.observe.blocked import with_blocked
from controller.observe.observer import Observer
from controller.plugin.watch import MOST_PLUGINS, PluginWatch
from controller.publish.changeover import Changeover, Published, Seen
from controller.webhook.certificate import ServingCertificate
from controller.webhook.review import review
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.credentials import Credentials
from driver.kube.errors import Forbidden, NotFound, Unreachable
from driver.kube.events import EventRecorder, Reference
from driver.kube.paths import NODES, object_path
from driver.process.boot import boot_folder
from driver.process.log import configure
from driver.process.metrics import Metrics
from driver.process.metrics.table import TABLE
from driver.process.pulse import Pulse
from driver.process.service import Service
from driver.process.sockets import registration_socket, service_socket_name
from envtest.client import paths
from envtest.client.api import APPLY, ApiClient, objects_in
from envtest.client.errors import ApiRefused, CommandFailed
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.client.waiting import fresh_namespace, wait_for, wait_for_list, wait_gone
from envtest.cluster import Cluster, Process
from envtest.embedded.cluster import EmbeddedCluster, KubeletTimes
from envtest.embedded.server import ALWAYS, EmbeddedApiServer
from envtest.real.api_server import RealApiServer
from envtest.real.assets import find_assets
from envtest.real.build import go_programs
from envtest.real.cluster import RealCluster
from gpuctl.__main__ import commands
from gpuctl.cli.cluster import ClusterView, connect_client
from gpuctl.cli.failures import error_text
from gpuctl.cli.unread import Unread
from gpuctl.demo.brisk import BRISK, BRISK_ON_REAL
from gpuctl.demo.cluster import DemoCluster
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from gpuctl.demo.played_programs import GpuPrograms
from gpuctl.explain.answer import explain_claim
from gpuctl.explain.findings import Explanation
from gpuctl.explain.snapshot import Snapshot
from gpuctl.fleet.cluster import views_of
from gpuctl.plan.planned import PlannedNode, plan_inventory, plan_node
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.cel.selector import SelectorDevice, compile_selector
from kubernetes_rules.defaults import defaulted_claim_spec
from kubernetes_rules.pod_claims import extended_requests
from kubernetes_rules.preemption.units import Unit
from kubernetes_rules.validation.dra_kinds import errors_of
from tools.conformance.allocation.area import our_answer
from tools.conformance.allocation.objects import claim, device, device_class, exactly, held, node, published
from tools.conformance.area import Case
from tools.conformance.nodes.mig_nodes import VGPU_HOSTS, inventory, look, one_rule, slices
from tools.conformance.nodes.passthrough_area import handed_out_twice
from tools.conformance.oracle import Oracle, read_vectors
from tools.conformance.victims.random_cases import pod, used_by
from tools.docs.site.places import DOCS, ROOT
from tools.hardware.recording import MACHINE
from tools.testbed.chart import CHART, HELMS, NAMESPACE, HelmRefused, rendered
from tools.testbed.chromium import Tab, chromium
from tools.testbed.memory_hook import memory_hook
