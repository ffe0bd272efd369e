"""Wire contracts with the kubelet: .proto files and the stubs generated beside them."""
