"""Judges whether a slice or a device can be used from a node: by name, from all nodes, or by a selector."""

from __future__ import annotations

from kubernetes_rules.allocator.failure import AllocationFailed
from kubernetes_rules.allocator.published import Selection
from kubernetes_rules.node_selectors import Node, NodeSelectorInvalid, selector_matches


def selects(selection: Selection, node: Node) -> bool:
    """Whether the node is selected; a name counts before ``allNodes``, that before the selector.

    Raises AllocationFailed for a selector that is malformed. Go: NodeMatches in the allocator's pools.
    """
    if selection.node_name:
        return node.name == selection.node_name
    if selection.all_nodes:
        return True
    if selection.terms is None:
        return False
    try:
        return selector_matches(selection.terms, node)
    except NodeSelectorInvalid as error:
        raise AllocationFailed(error.what, "correct the ResourceSlice") from error
