"""What apiextensions-apiserver decides about CustomResourceDefinitions and their objects: plain dicts."""

LEFT_OUT = (
    "conversion webhooks: a definition with the strategy Webhook is refused",
    "definitions that only an older Kubernetes accepted: their errors are not tolerated on update",
    "apiextensions.k8s.io/v1beta1",
    "the value in errors about all versions, or about a whole schema",
    "the words of Go in errors of regular expressions and of metadata that cannot be read",
    "managedFields in the metadata of embedded resources are not validated",
    "comments, groups and domains in brackets in strings with the format email",
    "the condition KubernetesAPIApprovalPolicyConformant",
)
"""What is missing on purpose, each in one line."""
