"""What lies in ``inside`` runs in a guest alone: it changes the drivers of devices that only that has."""

from pathlib import Path

from tests.guest.machine.machine import ON_THE_COMMAND_LINE

collect_ignore_glob = [] if ON_THE_COMMAND_LINE in Path("/proc/cmdline").read_text() else ["inside/*"]
