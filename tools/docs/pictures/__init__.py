"""The pictures of the documentation: those that gpuctl draws of a node, and screenshots."""
