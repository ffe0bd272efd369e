"""The MPS supervisor: a process of its own that runs MPS control daemons and outlives the kubelet plugin."""
