"""What claims hold on this node, durably, and the locks around it."""
