"""The two parts of the tests: what ``make test`` runs, and the rest, which ``make test-all`` runs after it.

``make test`` has the tests of every module that runs on nodes or for users, and one flow for each kind of
device and each way to share one. Everything else is the rest: the fake GPUs, the embedded cluster, all other
flows, the driver's processes, what is generated, the documentation.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIMIT_SECONDS = {"quick": 150, "rest": 300}
"""How long each part may take on two idle cores."""

QUICK_FOLDERS = (
    "tests/proto",
    "tests/driver",
    "tests/controller",
    "tests/kubeletplugin",
    "tests/gpuctl",
    "tests/kubernetes_rules",
    "tests/deploy/policies",
    "tests/tools/conformance/allocation",
    "tests/tools/conformance/api",
)
TAKE_LONG = (
    "tests/controller/test_faults.py",
    "tests/controller/test_main.py",
    "tests/controller/uninstall/test_program.py",
    "tests/controller/webhook/test_main.py",
    "tests/driver/process/test_log.py::test_a_service_loads_no_package_for_colours_or_kubeconfigs_and_grpc_keeps_quiet",
    "tests/gpuctl/completion/test_completion.py",
    "tests/gpuctl/demo/test_demo.py",
    "tests/gpuctl/demo/test_lent_gpus.py::test_the_story_is_told_with_idle_gpus_alone",
    "tests/gpuctl/demo/test_story.py",
    "tests/gpuctl/doctor/test_command.py::test_a_node_is_looked_at_in_the_pod_of_its_plugin",
    "tests/gpuctl/doctor/test_tier_probes.py",
    "tests/gpuctl/gather/test_command.py::test_a_node_is_gathered_in_the_pod_of_its_plugin",
    "tests/gpuctl/heal/test_walk.py",
    "tests/gpuctl/probe/test_program.py",
    "tests/gpuctl/status/test_live.py",
    "tests/gpuctl/verify/change/test_crash_sweep.py",
    "tests/gpuctl/verify/change/test_machines.py",
    "tests/gpuctl/verify/change/test_undo.py",
    "tests/gpuctl/verify/test_cuda_checks.py",
    "tests/kubeletplugin/claims/journal/test_deep_files.py",
    "tests/kubeletplugin/claims/journal/test_locks.py::test_a_key_held_by_another_process_is_waited_for",
    "tests/kubeletplugin/claims/test_crashes.py",
    "tests/kubeletplugin/devices/fabric/test_passthrough.py::test_every_step_may_be_the_last",
    "tests/kubeletplugin/devices/kinds/passthrough/test_crashes.py",
    "tests/kubeletplugin/devices/kinds/passthrough/test_sequences.py",
    "tests/kubeletplugin/devices/kinds/vgpu/test_virtual_functions.py",
    "tests/kubeletplugin/sharing/memory/test_hostile_sequences.py",
    "tests/kubeletplugin/sharing/mps/test_control.py::test_a_daemon_that_does_not_run_is_named_and_ends_nothing",
    "tests/kubeletplugin/sharing/mps/test_daemon_shm.py",
    "tests/kubeletplugin/sharing/mps/test_faults.py",
    "tests/kubeletplugin/sharing/mps/test_foreign.py::test_a_real_daemon_of_somebody_else_keeps_ours_from_starting",
    "tests/kubeletplugin/sharing/mps/test_recovery.py",
    "tests/kubeletplugin/sharing/mps/test_supervisor.py",
    "tests/kubeletplugin/sharing/test_held_memory.py::test_a_real_process_may_end_before_any_change_of_the_disk",
    "tests/kubeletplugin/sharing/test_mps_client.py",
    "tests/kubeletplugin/sharing/test_mps_contract.py",
    "tests/kubeletplugin/sharing/test_time_slices.py",
    "tests/kubernetes_rules/cel/test_selector.py::test_a_macro_that_doubles_its_text_is_refused",
)
"""Files and tests in the folders above that belong to the rest: they start processes or take many steps."""

NEED_ROOT = (
    "tests/driver/process/test_privileges.py::test_a_process_its_threads_and_its_programs_have_nothing_left_not_even_as_root",
    "tests/driver/process/test_privileges.py::test_only_what_is_kept_is_left",
    "tests/gpuctl/verify/test_compiled.py::test_everything_holds_over_compiled_libraries",
    "tests/kubeletplugin/claims/cdi/test_hooks.py::test_a_folder_that_is_mounted_noexec_is_named",
    "tests/kubeletplugin/devices/host/test_capabilities.py::test_a_node_that_nobody_made_yet_is_made_as_the_driver_wants_it",
    "tests/kubeletplugin/devices/host/test_gpu_nodes.py::test_missing_nodes_are_made_with_the_numbers_of_the_module_for_everybody",
    "tests/kubeletplugin/devices/host/test_gpu_nodes.py::test_owner_and_mode_are_those_of_the_drivers_parameters",
    "tests/kubeletplugin/devices/host/test_gpu_nodes.py::test_a_node_of_an_earlier_load_is_not_given_to_a_container",
    "tests/kubeletplugin/devices/host/test_real_kernel.py::test_a_host_without_modprobe_says_so",
    "tests/kubeletplugin/devices/host/test_real_kernel.py::test_the_modprobe_of_the_host_is_run_below_its_root",
    "tests/kubeletplugin/devices/vfio/test_users.py::test_a_char_device_is_known_by_its_number_in_any_root",
    "tests/kubeletplugin/devices/vfio/test_users.py::test_null_devices_of_pretend_nodes_are_told_apart",
    "tests/kubeletplugin/sharing/memory/test_hook_socket.py::test_other_users_are_refused_even_where_they_can_connect",
)
"""Tests that belong to the rest as well: ``make test`` is what an ordinary user runs."""

QUICK_FLOWS = (
    "tests/flow/test_whole_gpus.py::",
    "tests/flow/test_all_kinds.py::",
    "tests/flow/test_fabric.py::test_specs_written_for_nvidias_driver_get_a_partition_that_is_active_meanwhile",
    "tests/flow/test_memory_limits.py::test_a_share_of_ten_gib_gets_no_eleventh_whatever_its_pod_does",
    "tests/flow/test_mig.py::test_partitions_of_an_admin_are_noticed_handed_out_and_left_alone",
    "tests/flow/test_mig.py::test_seven_pods_share_a_gpu_a_bigger_one_waits_and_a_whole_gpu_is_the_next",
    "tests/flow/test_shares.py::test_the_time_slice_of_the_class_is_set_with_the_first_share_and_put_back_after_the_last",
    "tests/flow/test_sharing_lab.py::test_four_pods_compute_side_by_side_each_with_a_quarter_of_the_gpu",
    "tests/flow/test_vgpu_guests.py::test_two_machines_that_share_a_gpu_serve_a_pod_each_at_once",
    "tests/flow/test_vgpu_host.py::test_a_virtual_machine_gets_its_virtual_function_and_gives_it_back",
    "tests/gpuctl/demo/test_story.py::test_pods_with_their_parts_of_one_gpu_pass",
    "tests/tools/conformance/test_vectors.py::",
)
"""Tests of files that otherwise belong to the rest: flows, acts of the demo, recorded answers."""

LONGEST_FIRST = (
    "tests/kubeletplugin/claims/test_crashes.py",
    "tests/gpuctl/verify/change/test_machines.py",
    "tests/flow/test_channels.py",
    "tests/gpuctl/verify/change/test_crash_sweep.py",
    "tests/flow/test_large_gang.py",
    "tests/gpuctl/demo/test_lent_gpus.py",
    "tests/kubeletplugin/devices/kinds/vgpu/test_virtual_functions.py",
    "tests/gpuctl/doctor/test_tier_probes.py",
    "tests/test_wheel.py",
    "tests/kubeletplugin/devices/kinds/passthrough/test_crashes.py",
    "tests/tools/test_carry.py",
)
"""The files of the rest that take longest: begun last, each would keep one worker busy while others idle."""

_SLOWEST_FILES = 10


def is_quick(nodeid: str) -> bool:
    """Whether a test belongs to ``make test``, by its id."""
    if nodeid.startswith(QUICK_FLOWS):
        return True
    in_folders = nodeid.startswith(tuple(f"{folder}/" for folder in QUICK_FOLDERS))
    return in_folders and not nodeid.startswith((*TAKE_LONG, *NEED_ROOT))


def _may_have(path: str, part: str) -> bool:
    """Whether a file may have tests of the part; files that have none need not be imported."""
    has_quick = is_quick(path) or any(flow.startswith(f"{path}::") for flow in QUICK_FLOWS)
    has_rest = not is_quick(path) or any(one.startswith(f"{path}::") for one in (*TAKE_LONG, *NEED_ROOT))
    return has_quick if part == "quick" else has_rest and f"{path}::" not in QUICK_FLOWS


@dataclass(eq=False)
class Part:
    """A pytest plugin that leaves out the tests of the other part, and says at the end how long it took."""

    name: str
    root: Path
    began: float = field(default_factory=time.monotonic)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out files of the other part."""
        if not collection_path.name.startswith("test_"):
            return None
        path = collection_path.relative_to(self.root).as_posix()
        return None if _may_have(path, self.name) else True

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests of the other part in files that have both, and put the longest files first."""
        order = {path: at for at, path in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))
        others = [item for item in items if is_quick(item.nodeid) != (self.name == "quick")]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if is_quick(item.nodeid) == (self.name == "quick")]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how long the part took, and where most of the time went."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for reports in terminalreporter.stats.values():
            for report in reports:
                if isinstance(report, pytest.TestReport):
                    seconds[report.nodeid.partition("::")[0]] += report.duration
        if self.name == "rest":
            terminalreporter.section(f"the {_SLOWEST_FILES} slowest files")
            slowest = sorted(seconds.items(), key=lambda one: -one[1])[:_SLOWEST_FILES]
            for path, taken in slowest:
                terminalreporter.write_line(f"{taken:6.1f} s  {path}")
        took, limit = time.monotonic() - self.began, LIMIT_SECONDS[self.name]
        terminalreporter.write_line(f"took {took:.0f} s; on two idle cores it may take {limit} s")
