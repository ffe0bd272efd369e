"""What a wrong flag or a bad file behind one leads to: an exit code, and one line that says what to do."""

import re

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
        "--channels": "",
        "--imex-socket": "default:/etc/nvidia-imex/imex_ctrl.sock",
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


@both
def test_an_unknown_flag_and_a_node_name_whose_variable_is_empty_are_usage_errors(module: str) -> None:
    for given, wrong in ((["--no-such-flag"], "--no-such-flag"), ([], "--node-name")):
        code, lines = failed(module, *given, GPU_DRA_NODE_NAME="")

        assert (code, wrong in lines[-1]) == (2, True)
        assert f"python -m {module} --help" in "\n".join(lines)


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


REFUSED: tuple[tuple[str, str, str, str], ...] = (
    ("controller", "kubeconfig", "/missing/config", "the kubeconfig /missing/config does not exist"),
    ("kubeletplugin", "kubeconfig", "{folder}/list.yaml", "the kubeconfig {folder}/list.yaml"),
    ("controller", "nvml", "fake:no-such", "there is no machine 'no-such': `gpuctl plan --machines` lists"),
    ("kubeletplugin", "nvml", "fake:{folder}/broken.yaml", "{folder}/broken.yaml"),
    ("controller", "node_name", "Team A", "--node-name 'Team A'"),
    ("controller", "node_name", "nobody", "set --node-name to a name that kubectl get nodes shows"),
    ("kubeletplugin", "node_name", "", "--node-name ''"),
    ("kubeletplugin", "node_name", "n" * 239, "has 239 characters"),
    ("controller", "plugin_data_dir", "{long}", "bytes, a unix socket takes 107: use a shorter folder"),
    ("kubeletplugin", "plugins_dir", "{long}", "bytes, a unix socket takes 107: use a shorter folder"),
    ("kubeletplugin", "registry_dir", "{long}", "bytes, a unix socket takes 107: use a shorter folder"),
    ("kubeletplugin", "mps_dir", "{long}", "bytes, a unix socket takes 107: use a shorter folder"),
    ("kubeletplugin", "pod_uid", "../../up", "--pod-uid '../../up'"),
    ("kubeletplugin", "cdi_hook", "nvidia-cdi-hook", "--cdi-hook 'nvidia-cdi-hook' is not an absolute path"),
    ("kubeletplugin", "imex_socket", "imex.sock", "--imex-socket 'imex.sock' is not an absolute path"),
    ("controller", "config", "/missing/rules.yaml", "/missing/rules.yaml"),
    ("controller", "metrics_addr", "{taken}", "cannot serve metrics at {taken}"),
    ("kubeletplugin", "metrics_addr", "{taken}", "give --metrics-addr a free host:port"),
    ("controller", "health_addr", "{taken}", "cannot serve probes at {taken}"),
    ("kubeletplugin", "health_addr", "{taken}", "give --health-addr a free host:port"),
)
"""A process, a flag, its wrong value, and words of the error; ``{folder}`` and the like are filled in."""


@pytest.mark.parametrize(("module", "flag", "value", "words"), REFUSED)
def test_a_wrong_value_is_refused_in_one_line(
    node: Node, module: str, flag: str, value: str, words: str
) -> None:
    places = {
        "folder": node.folder,
        "long": node.folder / ("x" * 90),
        "taken": node.server.url.removeprefix("http://"),
    }
    (node.folder / ("x" * 90)).mkdir()
    (node.folder / "list.yaml").write_text("[]")
    (node.folder / "broken.yaml").write_text("gpus:\n  - [\n")
    flags = node.controller_flags if module == "controller" else node.plugin_flags

    code, lines = failed(module, *flags(**{flag: value.format(**places)}))

    assert (code, len(lines), lines[0][:7]) == (1, 1, "Error: "), lines
    assert words.format(**places) in lines[0]
    assert not node.service_socket.exists()
    assert not node.registration_socket.exists()
    assert node.slices() == []


@both
def test_without_kubeconfig_and_outside_of_a_pod_the_flag_is_named(node: Node, module: str) -> None:
    flags = node.controller_flags() if module == "controller" else node.plugin_flags()
    given = [flag for flag in flags if not flag.startswith("--kubeconfig")]
    code, lines = failed(module, *given, KUBERNETES_SERVICE_HOST="")

    assert code == 1
    assert "this is not a pod: name one with --kubeconfig" in lines[0]


@pytest.mark.parametrize("flag", ["plugins_dir", "registry_dir", "cdi_dir", "driver_root", "sysfs_root"])
def test_a_folder_that_is_missing_is_a_usage_error_of_the_plugin(node: Node, flag: str) -> None:
    code, lines = failed("kubeletplugin", *node.plugin_flags(**{flag: "/missing/folder"}))

    assert code == 2
    assert f"'--{flag.replace('_', '-')}'" in lines[-1]
    assert "/missing/folder" in lines[-1]
