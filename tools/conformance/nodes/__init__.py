"""What nodes publish, judged by Kubernetes."""
