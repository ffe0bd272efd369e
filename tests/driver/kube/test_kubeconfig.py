"""Kubeconfigs are read as kubectl reads them: several files are one, and a context may be chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driver.errors import ConfigError
from driver.kube.kubeconfig import Kubeconfig


def written(path: Path, **content: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**content, "current-context": content.get("current", "")}))
    return path


def cluster(name: str, **more: str) -> dict[str, Any]:
    return {"name": name, "cluster": {"server": f"https://{name}", **more}}


def context(name: str, cluster: str, **more: str) -> dict[str, Any]:
    return {"name": name, "context": {"cluster": cluster, "user": "u", **more}}


def test_of_several_files_the_first_entry_of_each_name_counts(tmp_path: Path) -> None:
    first = written(tmp_path / "a", clusters=[cluster("one")], contexts=[context("x", "one")])
    second = written(
        tmp_path / "b",
        current="y",
        clusters=[{"name": "one", "cluster": {"server": "https://other"}}, cluster("two")],
        contexts=[context("x", "two"), context("y", "two", namespace="team")],
        users=[{"name": "u", "user": {"token": "t"}}],
    )
    third = written(tmp_path / "c", current="x")

    config = Kubeconfig((first, tmp_path / "missing", second, third))
    content = config.read()

    assert [one["cluster"]["server"] for one in content["clusters"]] == ["https://one", "https://two"]
    assert [one["context"]["cluster"] for one in content["contexts"]] == ["one", "two"]
    assert content["users"] == [{"name": "u", "user": {"token": "t"}}]
    assert content["current-context"] == "y"
    assert config.namespace() == "team"


def test_the_paths_in_a_file_start_from_its_folder(tmp_path: Path) -> None:
    plugin = {"command": "./login", "args": ["a/b"]}
    user = {
        "client-certificate": "me.crt",
        "client-key": "/keys/me.key",
        "tokenFile": "../token",
        "exec": plugin,
    }
    near = written(
        tmp_path / "a" / "config", clusters=[cluster("one", **{"certificate-authority": "ca.crt"})]
    )
    far = written(
        tmp_path / "b" / "config",
        users=[
            {"name": "u", "user": user},
            {"name": "v", "user": {"exec": {"command": "aws"}}},
        ],
    )

    content = Kubeconfig((near, far)).read()

    assert content["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "a" / "ca.crt")
    found = content["users"][0]["user"]
    assert found["client-certificate"] == str(tmp_path / "b" / "me.crt")
    assert found["client-key"] == "/keys/me.key"
    assert Path(found["tokenFile"]).resolve() == tmp_path / "token"
    assert Path(found["exec"]["command"]).resolve() == tmp_path / "b" / "login"
    assert found["exec"]["args"] == ["a/b"]
    assert content["users"][1]["user"] == {"exec": {"command": "aws"}}


def test_a_chosen_context_is_the_current_one(tmp_path: Path) -> None:
    file = written(
        tmp_path / "a",
        current="x",
        clusters=[cluster("one"), cluster("two")],
        contexts=[context("x", "one", namespace="left"), context("y", "two", namespace="right")],
    )

    assert Kubeconfig((file,)).namespace() == "left"
    assert Kubeconfig((file,), "y").namespace() == "right"
    assert Kubeconfig((file,), "y").read()["current-context"] == "y"


def test_a_context_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    file = written(tmp_path / "a", contexts=[context("x", "one"), context("y", "two")])

    with pytest.raises(ConfigError, match="has no context 'z': it has x, y"):
        Kubeconfig((file,), "z").read()


def test_one_file_alone_has_to_be_there_and_one_of_several(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Kubeconfig((tmp_path / "a",)).read()
    with pytest.raises(ConfigError, match=r"the kubeconfig .*/a:.*/b does not exist"):
        Kubeconfig((tmp_path / "a", tmp_path / "b")).read()


@pytest.mark.parametrize("contexts", [7, ["x"], [{"context": {}}], {"x": {}}])
def test_a_list_of_something_else_is_named(tmp_path: Path, contexts: Any) -> None:
    file = written(tmp_path / "a", contexts=contexts)

    with pytest.raises(ConfigError, match=f"contexts of the kubeconfig {file}"):
        Kubeconfig((file,)).read()


def test_a_context_without_a_namespace_names_none(tmp_path: Path) -> None:
    file = written(tmp_path / "a", current="x", contexts=[context("x", "one")])

    assert Kubeconfig((file,)).namespace() is None
