"""What the helm chart takes: the types of its values, and the files that follow from them."""
