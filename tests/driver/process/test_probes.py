"""Probes are answered with a status and one line that says why."""

import pytest

from driver.process.probes import Probes, endpoint, serve
from tests.clusters import Service
from tests.driver.process.served import asked, running
from tests.gpus import ConfigError


def test_each_path_answers_its_own_question() -> None:
    probes = Probes(lambda: "", lambda: "publisher hangs", lambda: "two\nlines")
    with running(endpoint("127.0.0.1:0", probes)) as port:
        assert asked(port, "/startupz") == (200, "ok\n")
        assert asked(port, "/livez?verbose") == (503, "publisher hangs\n")
        assert asked(port, "/readyz") == (503, "two lines\n")
        code, text = asked(port, "/metrics")
        assert code == 404
        assert "/startupz, /livez, /readyz" in text


def test_an_address_that_is_none_is_named_with_its_flag() -> None:
    with pytest.raises(ConfigError, match="give --health-addr"):
        serve(Service(), "127.0.0.1:70000", Probes(lambda: "", lambda: "", lambda: ""))
