"""The NVIDIA driver's files on a pretended node: libraries, programs, layouts of distributions."""
