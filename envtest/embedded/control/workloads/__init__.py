"""The embedded controllers that make pods of Deployments, ReplicaSets and Jobs."""
