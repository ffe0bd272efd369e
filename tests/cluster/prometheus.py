"""A real Prometheus, Debian's, with the shipped rules, which scrapes what a test names; and promtool."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.clusters import Object
from tests.eventually import eventually


@dataclass(frozen=True, slots=True)
class Target:
    """Where numbers are, and the labels that the chart's ServiceMonitor gives them."""

    address: str
    job: str
    node: str = ""


class Prometheus:
    """A running Prometheus; ``ask`` is its HTTP API."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self._process, self._address, self._log = process, address, log

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; fails with its words when it refuses."""
        assert self._process.poll() is None, self._log.read_text()
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def ask(self, expression: str) -> list[Object]:
        """What an expression gives now, as series with their values."""
        answered: Object = self.get("query", query=expression)
        return list(answered["result"])

    def wait_until(self, is_so: Any, what: str) -> Any:
        """Ask again until something comes out; what comes out."""
        log = self._log
        return eventually(what, is_so, context=lambda: log.read_text()[-3000:])

    def firing(self) -> set[str]:
        """The alerts that fire."""
        found = self.ask('ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"] for one in found}


@contextmanager
def prometheus(folder: Path, rules: tuple[Path, ...], targets: tuple[Target, ...]) -> Iterator[Prometheus]:
    """Run one that scrapes every second and follows these rules in seconds instead of minutes."""
    quick = [_quick(file, folder) for file in rules]
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_config(quick, targets)))
    log = folder / "prometheus.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"),
                "--web.listen-address=127.0.0.1:0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        address = eventually("Prometheus serves", lambda: _address(log), context=log.read_text)
        running = Prometheus(process, address, log)
        running.wait_until(lambda: _is_ready(address), "Prometheus is ready")
        yield running
    finally:
        process.kill()
        process.wait()


def promtool(*arguments: str) -> str:
    """Run promtool; what it said. Fails when it finds something wrong."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _address(log: Path) -> str:
    """Where a Prometheus listens, by its log; empty as long as it does not."""
    found = re.search(r'msg="Listening on" address=(\S+)', log.read_text())
    return found[1] if found else ""


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _quick(file: Path, folder: Path) -> Path:
    """The rules, looked at each second and believed at once."""
    groups = yaml.safe_load(file.read_text())["groups"]
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
    made = folder / file.name
    made.write_text(yaml.safe_dump({"groups": groups}))
    return made


def _config(rules: list[Path], targets: tuple[Target, ...]) -> Object:
    jobs: Mapping[str, list[Target]] = {
        name: [one for one in targets if one.job == name] for name in {one.job for one in targets}
    }
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": [
            {
                "job_name": name,
                "honor_labels": True,
                "static_configs": [
                    {"targets": [one.address], "labels": {"node": one.node} if one.node else {}}
                    for one in several
                ],
            }
            for name, several in jobs.items()
        ],
    }
