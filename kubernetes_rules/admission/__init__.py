"""What the admission policies of kube-apiserver decide about a write, and how they and webhooks match it."""
