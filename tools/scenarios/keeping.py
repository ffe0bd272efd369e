"""Keeps the cluster of a scenario for a person, who follows its page by hand, until Ctrl-C."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.catalogue import Scenario
from tools.scenarios.description import ClusterKind
from tools.scenarios.places.place import built_place, session_environment


def keep(scenario: Scenario, kind: ClusterKind, say: Callable[[str], None]) -> None:
    """Build the cluster of a scenario, say how a shell gets to it, and wait for KeyboardInterrupt.

    The embedded cluster needs nothing of Kubernetes but kubectl, so a person's own is taken where there is
    one: building it takes Go and minutes.
    """
    own = shutil.which("kubectl") if kind == "embedded" else None
    if own is None and kind == "embedded":
        say("there is no kubectl on the PATH: one is built unless it was before, which takes Go and minutes")
    with (
        built_place(scenario.description.wanted, kind, Path(own).absolute() if own else None) as place,
        tempfile.TemporaryDirectory(prefix="scenario-") as home,
    ):
        environment = session_environment(place, Path(home))
        taken = {name: shlex.quote(environment[name]) for name in ("KUBECONFIG", *place.environment)}
        taken["PATH"] = f"{shlex.quote(str(place.programs))}:$PATH"
        words = " ".join(f"{name}={value}" for name, value in taken.items())
        page = scenario.page.file
        shown = page.relative_to(PACKAGE_ROOT) if page.is_relative_to(PACKAGE_ROOT) else page
        try:  # around the message too: who reads it may press Ctrl-C before the wait has begun
            say(f"export {words}\n\nFollow {shown} in a shell with these, from the root of this checkout.")
            say("The cluster runs until Ctrl-C.")
            threading.Event().wait()
        except KeyboardInterrupt:
            say("ending the cluster")
