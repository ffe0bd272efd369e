"""The command `gpuctl gather`: a bug report as a tar, with secrets left out."""
