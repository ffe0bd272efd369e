"""The same HTTP requests to kube-apiserver and to the embedded API server: what differs in their answers."""
