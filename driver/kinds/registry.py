"""The kinds of devices that this driver has. Who connects a process may hand it others."""

from __future__ import annotations

from driver.kinds.kind import Kinds
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.passthrough.kind import PASSTHROUGH
from driver.kinds.sharing.kind import SHARED
from driver.kinds.vgpu.kind import VGPU
from driver.kinds.whole import WHOLE

KINDS = Kinds((WHOLE, STATIC, MADE, VGPU, PASSTHROUGH), layers=(SHARED,))
"""Each sees what those before it offer: partitions change what is whole, virtual machines may have all of it
instead, and sharing lies on what containers get."""
