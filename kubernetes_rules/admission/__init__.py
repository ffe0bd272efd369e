"""What webhooks and admission policies of kube-apiserver decide about a write, and how they match it."""
