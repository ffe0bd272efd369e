"""Binds IOMMU groups to vfio and gives them back: which functions, to which driver, and who uses them."""
