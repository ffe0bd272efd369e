"""What nodes publish, as cases for Kubernetes."""
