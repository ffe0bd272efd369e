"""The kinds of devices that this driver has; ``KINDS.added`` adds one of somebody else."""

from __future__ import annotations

from driver.kinds.channel import CHANNEL
from driver.kinds.kind import Kinds
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.passthrough.kind import PASSTHROUGH
from driver.kinds.sharing.kind import SHARED
from driver.kinds.vgpu.kind import VGPU
from driver.kinds.whole import WHOLE

# The order matters: each gets the forms that those before it made. Partitions change the whole GPU, virtual
# machines may have all of it instead, and sharing is applied to what is left for containers.
KINDS = Kinds((WHOLE, STATIC, MADE, VGPU, PASSTHROUGH, CHANNEL), layers=(SHARED,))
