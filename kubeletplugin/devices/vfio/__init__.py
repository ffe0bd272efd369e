"""Hands IOMMU groups to vfio and back: which functions, by which driver, and who uses them."""
