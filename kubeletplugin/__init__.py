"""The kubelet plugin of a node: prepares and unprepares claims."""
