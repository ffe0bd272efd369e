"""What a wrong flag or a bad file behind one leads to: an exit code, and one line that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import controller.__main__ as controller_main
import kubeletplugin.__main__ as plugin_main
from tests.processes.node import Node
from tests.processes.process import FreshProcess, failed

COMMANDS = {"controller": controller_main.main, "kubeletplugin": plugin_main.main}
FLAGS = {
    "controller": {
        "--node-name": "required",
        "--kubeconfig": "",
        "--nvml": "default:real",
        "--config": "",
        "--driver-root": "default:auto",
        "--host-root": "default:/",
        "--sysfs-root": "default:/sys",
        "--plugin-data-dir": "default:/var/lib/kubelet/plugins/gpu.nvidia.com",
        "--device-plugin": "default:taint",
        "--metrics-addr": 'default:""',
        "--health-addr": 'default:""',
        "--log-level": "default:info",
    },
    "kubeletplugin": {
        "--node-name": "required",
        "--kubeconfig": "",
        "--nvml": "default:real",
        "--driver-root": "default:auto",
        "--host-root": "default:/",
        "--host-driver-root": "default:(--driver-root)",
        "--plugins-dir": "default:/var/lib/kubelet/plugins",
        "--registry-dir": "default:/var/lib/kubelet/plugins_registry",
        "--cdi-dir": "default:/var/run/cdi",
        "--cdi-hook": "default:copy",
        "--memory-hook": "default:(theimage's)",
        "--sysfs-root": "default:/sys",
        "--mps-dir": "default:/run/gpu.nvidia.com/mps",
        "--metrics-addr": 'default:""',
        "--health-addr": 'default:""',
        "--used-memory-status-seconds": "default:0;x>=0",
        "--pod-uid": 'default:""',
        "--retire": "",
        "--log-level": "default:info",
    },
}
"""What people may set, and what it is when they do not."""

WITHOUT_VALUE = {"controller": {"--version"}, "kubeletplugin": {"--version", "--retire"}}

OPTION = re.compile(
    r"(--(?!version|help)[a-z-]+)(?:TEXT|PATH|DIRECTORY|\[[a-z|]+\]|(?=[A-Z]))(.+?)\[envvar:(GPU_DRA_[A-Z_]+)(?:;([^\]]*))?\]"
)
"""A flag, its words, its variable and its default in the help text without white space."""

both = pytest.mark.parametrize("module", sorted(COMMANDS))


def refused(node: Node, module: str, **changed: str) -> str:
    """The one line of a process that does not start because of these flags."""
    flags = node.controller_flags if module == "controller" else node.plugin_flags
    code, lines = failed(module, *flags(**changed))
    assert code == 1, lines
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert not node.service_socket.exists()
    assert not node.registration_socket.exists()
    return lines[0]


@both
def test_an_unknown_flag_is_a_usage_error(module: str) -> None:
    code, lines = failed(module, "--no-such-flag")

    assert code == 2
    assert "--no-such-flag" in lines[-1]
    assert f"python -m {module} --help" in "\n".join(lines)


@both
def test_a_missing_node_name_is_a_usage_error_also_when_its_variable_is_empty(module: str) -> None:
    code, lines = failed(module, GPU_DRA_NODE_NAME="")

    assert code == 2
    assert "--node-name" in lines[-1]


@both
def test_the_help_explains_each_flag_with_its_default_and_its_variable(module: str) -> None:
    code, lines = failed(module, "--help")
    text = re.sub(r"\s+", "", "".join(lines))

    assert code == 0
    told = {flag: (variable, more) for flag, words, variable, more in OPTION.findall(text) if len(words) > 10}
    assert told == {
        flag: (f"GPU_DRA_{flag.removeprefix('--').replace('-', '_').upper()}", more)
        for flag, more in FLAGS[module].items()
    }
    assert {option.opts[0] for option in COMMANDS[module].params} == {*FLAGS[module], *WITHOUT_VALUE[module]}


@both
def test_no_variable_makes_a_process_say_its_version_and_end(module: str) -> None:
    _, lines = failed(module, GPU_DRA_VERSION="1")

    assert "--node-name" in lines[-1]


def test_every_flag_can_be_given_as_an_environment_variable(node: Node) -> None:
    def variables(flags: list[str]) -> dict[str, str]:
        pairs = (flag.removeprefix("--").split("=", 1) for flag in flags)
        return {f"GPU_DRA_{name.replace('-', '_').upper()}": value for name, value in pairs}

    with (
        FreshProcess("kubeletplugin", **variables(node.plugin_flags())) as plugin,
        FreshProcess("controller", **variables(node.controller_flags())) as controller,
    ):
        node.register(plugin)

        node.publishes(8, controller)
        assert (plugin.stop(), controller.stop()) == (0, 0)


@both
def test_a_kubeconfig_that_is_missing_is_named(node: Node, module: str) -> None:
    line = refused(node, module, kubeconfig="/missing/config")

    assert "the kubeconfig /missing/config does not exist" in line
    assert "check --kubeconfig" in line


@both
@pytest.mark.parametrize("content", ["{a: [}", "[]"], ids=["no YAML", "a list"])
def test_a_kubeconfig_that_is_none_is_named(node: Node, module: str, content: str) -> None:
    path = node.folder / "other"
    path.write_text(content)

    assert f"the kubeconfig {path}" in refused(node, module, kubeconfig=str(path))


@both
def test_without_kubeconfig_and_outside_of_a_pod_the_flag_is_named(node: Node, module: str) -> None:
    flags = node.controller_flags() if module == "controller" else node.plugin_flags()
    given = [flag for flag in flags if not flag.startswith("--kubeconfig")]
    code, lines = failed(module, *given, KUBERNETES_SERVICE_HOST="")

    assert code == 1
    assert "this is not a pod: name one with --kubeconfig" in lines[0]


@both
@pytest.mark.parametrize(
    ("nvml", "told"),
    [
        ("fake:no-such", "there is no machine 'no-such': `gpuctl plan --machines` lists"),
        ("magic", "hgx-h100"),
        ("fake:/missing/machine.yaml", "/missing/machine.yaml cannot be read: No such file"),
    ],
)
def test_an_unknown_machine_is_named_with_where_there_are_some(
    node: Node, module: str, nvml: str, told: str
) -> None:
    assert told in refused(node, module, nvml=nvml)


@both
def test_a_machine_file_that_is_broken_is_named_in_one_line(node: Node, module: str) -> None:
    path = node.folder / "machine.yaml"
    path.write_text("gpus:\n  - [\n")

    assert str(path) in refused(node, module, nvml=f"fake:{path}")


@both
def test_a_name_that_no_node_can_have_is_refused(node: Node, module: str) -> None:
    line = refused(node, module, node_name="Team A")

    assert "--node-name 'Team A'" in line
    assert "kubectl get nodes" in line


@both
def test_an_empty_node_name_is_refused(node: Node, module: str) -> None:
    assert "--node-name ''" in refused(node, module, node_name="")


def test_a_node_that_does_not_exist_ends_the_controller_with_its_name(node: Node) -> None:
    line = refused(node, "controller", node_name="nobody")

    assert "the node 'nobody' does not exist" in line
    assert "set --node-name to a name that kubectl get nodes shows" in line
    assert node.slices() == []


@pytest.mark.parametrize(
    ("module", "flag"),
    [
        ("controller", "plugin_data_dir"),
        ("kubeletplugin", "plugins_dir"),
        ("kubeletplugin", "registry_dir"),
        ("kubeletplugin", "mps_dir"),
    ],
)
def test_a_socket_path_over_107_bytes_is_named_with_its_length(node: Node, module: str, flag: str) -> None:
    long = node.folder / ("x" * 90)
    long.mkdir()

    line = refused(node, module, **{flag: str(long)})

    assert str(long) in line
    assert re.search(r"has \d{3} bytes, a unix socket takes 107: use a shorter folder", line)


@pytest.mark.parametrize("flag", ["plugins_dir", "registry_dir", "cdi_dir", "driver_root", "sysfs_root"])
def test_a_folder_that_is_missing_is_a_usage_error_of_the_plugin(node: Node, flag: str) -> None:
    code, lines = failed("kubeletplugin", *node.plugin_flags(**{flag: "/missing/folder"}))

    assert code == 2
    assert f"'--{flag.replace('_', '-')}'" in lines[-1]
    assert "/missing/folder" in lines[-1]


def test_a_pod_uid_that_is_none_is_refused(node: Node) -> None:
    assert "--pod-uid '../../up'" in refused(node, "kubeletplugin", pod_uid="../../up")


def test_a_hook_that_is_no_absolute_path_is_refused(node: Node) -> None:
    assert "--cdi-hook 'nvidia-cdi-hook' is not an absolute path" in refused(
        node, "kubeletplugin", cdi_hook="nvidia-cdi-hook"
    )


def test_a_data_folder_that_cannot_be_made_is_named(node: Node) -> None:
    node.data.write_text("in the way")

    line = refused(node, "kubeletplugin")

    assert str(node.data) in line
    assert node.data.read_text() == "in the way"


def test_a_node_configuration_that_is_missing_is_named(node: Node) -> None:
    assert "/missing/rules.yaml" in refused(node, "controller", config="/missing/rules.yaml")


@both
def test_an_address_for_metrics_that_is_taken_is_named(node: Node, module: str) -> None:
    taken = node.server.url.removeprefix("http://")

    line = refused(node, module, metrics_addr=taken)

    assert f"cannot serve metrics at {taken}" in line
    assert "give --metrics-addr a free host:port" in line


def test_a_second_plugin_on_the_same_socket_ends_and_the_first_goes_on(node: Node) -> None:
    with node.plugin() as first:
        code, lines = failed("kubeletplugin", *node.plugin_flags())

        assert code == 1
        assert lines[0].startswith(f"Error: another server answers at {node.service_socket}: stop it, or ")
        assert len(lines) == 1
        assert node.prepare(node.claim("train", node.gpus[0]))[0].error == ""
        assert first.stop() == 0


def test_a_file_in_the_way_of_a_socket_is_left_alone(node: Node) -> None:
    node.data.mkdir()
    node.service_socket.write_text("not a socket")

    code, lines = failed("kubeletplugin", *node.plugin_flags())

    assert (code, len(lines)) == (1, 1)
    assert f"{node.service_socket} exists and is not a socket" in lines[0]
    assert Path(node.service_socket).read_text() == "not a socket"
