"""A virtual machine with a kernel and an IOMMU of its own, in which this machine's files run."""
