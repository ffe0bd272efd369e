"""Kubeconfigs are read as kubectl reads them: several files are one, and a context may be chosen."""

import json
from pathlib import Path
from typing import Any

import pytest

from driver.kube.access import Kubeconfig
from driver.kube.kubeconfig import access_of, chosen_context, contexts_of
from tests.clusters import Object
from tests.gpus import ConfigError

TOKEN = {"token": "t"}


def written(path: Path, **content: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def cluster(name: str, **more: str) -> Object:
    return {"name": name, "cluster": {"server": f"https://{name}/", **more}}


def context(name: str, cluster: str, **more: str) -> Object:
    return {"name": name, "context": {"cluster": cluster, "user": "u", **more}}


def user(**entry: Any) -> Object:
    return {"name": "u", "user": entry}


def test_of_several_files_the_first_entry_of_each_name_counts(tmp_path: Path) -> None:
    first = written(tmp_path / "a", clusters=[cluster("one")], contexts=[context("x", "one")])
    second = written(
        tmp_path / "b",
        **{"current-context": "y"},
        clusters=[{"name": "one", "cluster": {"server": "https://other"}}, cluster("two")],
        contexts=[context("x", "two"), context("y", "two", namespace="team")],
        users=[user(**TOKEN)],
    )
    both = (first, tmp_path / "missing", second)

    assert access_of(Kubeconfig(both)).server == "https://two"
    assert chosen_context(Kubeconfig(both)) == ("y", "team")
    assert access_of(Kubeconfig(both, "x")).server == "https://one"
    assert access_of(Kubeconfig(both)).authorization() == "Bearer t"
    assert contexts_of(Kubeconfig(both)) == ["x", "y"]


def test_the_paths_in_a_file_start_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]
) -> None:
    near = written(
        tmp_path / "a" / "config",
        **{"current-context": "x"},
        clusters=[cluster("one", **{"certificate-authority": "ca.crt"})],
        contexts=[context("x", "one")],
    )
    (tmp_path / "a" / "ca.crt").write_bytes(pair[0].read_bytes())
    far = written(tmp_path / "b" / "config", users=[user(tokenFile="../token")])
    (tmp_path / "token").write_text("from file\n")
    monkeypatch.chdir(tmp_path)

    access = access_of(Kubeconfig((near.relative_to(tmp_path), far.relative_to(tmp_path))))

    assert access.authority is not None
    assert access.authority.path.resolve() == tmp_path / "a" / "ca.crt"
    monkeypatch.chdir("/")
    assert access.authorization() == "Bearer from file"
    (tmp_path / "token").write_text("rotated")
    assert access.authorization() == "Bearer rotated"


@pytest.mark.parametrize("context_name", [None, "z"])
def test_a_context_that_is_not_there_is_an_error(tmp_path: Path, context_name: str | None) -> None:
    file = written(tmp_path / "a", clusters=[cluster("one")], contexts=[context("x", "one")], users=[])

    with pytest.raises(ConfigError, match=f"cannot use the kubeconfig {file}"):
        access_of(Kubeconfig((file,), context_name))


def test_one_of_the_files_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the kubeconfig .*/a:.*/b does not exist"):
        access_of(Kubeconfig((tmp_path / "a", tmp_path / "b")))


def test_a_context_without_a_namespace_names_none_and_without_a_user_no_token(tmp_path: Path) -> None:
    lonely = {"name": "x", "context": {"cluster": "one"}}
    file = written(
        tmp_path / "a", **{"current-context": "x"}, clusters=[cluster("one")], contexts=[lonely], users=[]
    )

    assert chosen_context(Kubeconfig((file,))) == ("x", "")
    assert access_of(Kubeconfig((file,))).authorization() is None
