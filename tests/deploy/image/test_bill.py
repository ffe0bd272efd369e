"""The bill of materials is a CycloneDX document that says what lies in the image and what needs what."""

import hashlib
import json
from pathlib import Path
from typing import Any

from deploy.image.bill import Bill, Component, Program, go_modules, python_components
from tests.deploy.image.installed import installed

TOLD_OF_MEMORY = """\
/hook/gpu-memory-hook: go1.26.8
\tpath\tgpu-dra.example/memory-hook/gpu-memory-hook
\tmod\tgpu-dra.example/memory-hook\t(devel)\t
\tbuild\tCGO_ENABLED=0
"""

TOLD = """\
/hook/nvidia-cdi-hook: go1.26.8
\tpath\tgithub.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook
\tmod\tgithub.com/NVIDIA/nvidia-container-toolkit\tv1.20.1\th1:DsE0Pnu2XAl7IC00W2tmld7i=
\tdep\tgithub.com/NVIDIA/go-nvml\tv0.13.4-0\th1:o3jp9u2x1R9ShFE3v=
\tbuild\t-buildmode=exe
"""


def bill(tmp_path: Path, components: list[Component]) -> Any:
    hook, memory = tmp_path / "nvidia-cdi-hook", tmp_path / "gpu-memory-hook"
    hook.write_bytes(b"hook")
    memory.write_bytes(b"memory")
    programs = Program(hook, go_modules(TOLD)), Program(memory, go_modules(TOLD_OF_MEMORY))
    return json.loads(Bill("gpu-dra", components, *programs, "python:1", epoch=0).to_json())


def test_modules_are_read_as_go_tells_them() -> None:
    modules = go_modules(TOLD)
    assert (modules.main.version, modules.go) == ("v1.20.1", "go1.26.8")
    assert [(one.name, one.version) for one in modules.linked] == [("github.com/NVIDIA/go-nvml", "v0.13.4-0")]


def test_a_library_has_the_digest_and_the_licence_that_are_known(tmp_path: Path) -> None:
    found = installed(tmp_path, ("Some_Lib", "2.0"), ("other", "1"))
    one, other = python_components(found, {"Some_Lib": "00ff"}, {"Some_Lib": "MIT"})

    assert one["purl"] == "pkg:pypi/some-lib@2.0"
    assert one["hashes"] == [{"alg": "SHA-256", "content": "00ff"}]
    assert one["licenses"] == [{"license": {"name": "MIT"}}]
    assert not {"hashes", "licenses"} & set(other)


def test_everything_listed_is_needed_by_something(tmp_path: Path) -> None:
    components = python_components(installed(tmp_path, ("gpu-dra", "0.1.0"), ("lib", "1")), {}, {})
    document = bill(tmp_path, components)

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == "gpu-dra"
    assert document["metadata"]["properties"] == [{"name": "gpu-dra:base-image", "value": "python:1"}]
    listed = {one["bom-ref"] for one in document["components"]}
    needed = {ref for one in document["dependencies"] for ref in one["dependsOn"]}
    assert listed == needed
    assert "pkg:golang/std@1.26.8" in listed
    assert len(listed) == len(document["components"])
    for name, content in (("nvidia-cdi-hook", b"hook"), ("gpu-memory-hook", b"memory")):
        program = next(one for one in document["components"] if one["name"] == name)
        assert program["hashes"][0]["content"] == hashlib.sha256(content).hexdigest()


def test_the_drivers_own_hook_has_its_version_and_needs_gos_library_alone(tmp_path: Path) -> None:
    components = python_components(installed(tmp_path, ("gpu-dra", "0.1.0")), {}, {})
    document = bill(tmp_path, components)

    hook = next(one for one in document["components"] if one["name"] == "gpu-memory-hook")
    assert hook["version"] == "0.1.0"
    [needs] = [one for one in document["dependencies"] if one["ref"] == hook["bom-ref"]]
    assert needs["dependsOn"] == ["pkg:golang/std@1.26.8"]
