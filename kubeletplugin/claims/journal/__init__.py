"""What claims hold on this node within a boot, other instances beside this one, and the locks."""
