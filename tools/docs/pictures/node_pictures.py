"""Pictures that ``gpuctl -o svg`` draws of a node: a GPU's forms, who reaches whom, who holds what."""

from __future__ import annotations

from gpuctl.node.picture import published_gpus
from gpuctl.node.topology_matrix import matrix_of
from gpuctl.node.topology_svg import topology_svg
from gpuctl.status.forms_svg import forms_svg
from gpuctl.status.occupancy_svg import occupancy_svg
from tools.docs.pictures.scene import ALL_TIERS, Wanted, claimed, published, with_xid

MACHINE = "hgx-h100"
MESHED_MACHINE = "dgx1-v100"
"""Its NVLinks do not connect every GPU with every other one, so there is something to see."""

SICK_GPU, XID = 6, 79
PODS = (
    Wanted("research", "train-0", "large"),
    Wanted("research", "train-1", "large"),
    Wanted("research", "tuning", "mig-large"),
    Wanted("shop", "web", "mig-medium"),
    *(Wanted("ci", f"ui-{number}", "mig-small") for number in range(3)),
    *(Wanted("lab", f"lab-{number}", "shared-mps") for number in range(5)),
    *(Wanted("eda", f"notes-{number}", "shared-timesliced") for number in range(2)),
)
"""What runs on the node of the picture of occupancy."""


def forms() -> str:
    """The forms of one GPU of which a pod has a partition: what that excludes lies above and below it."""
    view = claimed(published(MACHINE, ALL_TIERS, gpus=1), [Wanted("research", "tuning", "mig-large")])
    return forms_svg([(f"GPU {gpu.label}", gpu) for gpu in view.gpus])


def topology() -> str:
    """The GPUs of a DGX-1."""
    gpus = published_gpus(published(MESHED_MACHINE), ())
    return topology_svg(MESHED_MACHINE, matrix_of(gpus))


def occupancy() -> str:
    """A node on which all tiers are in use, and one GPU is sick."""
    return occupancy_svg([claimed(with_xid(published(MACHINE, ALL_TIERS), SICK_GPU, XID), PODS)])
