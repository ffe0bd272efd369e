"""The command `gpuctl doctor`: looks at a cluster and at its nodes, and says what is wrong."""
