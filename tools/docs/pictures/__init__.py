"""The pictures of the documentation: drawings of a node by gpuctl, and screenshots."""
