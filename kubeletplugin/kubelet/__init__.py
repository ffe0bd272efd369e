"""gRPC with the kubelet and the controller."""
