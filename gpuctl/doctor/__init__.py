"""The command `gpuctl doctor`: checks a cluster and its nodes, and says what is wrong and what to do."""
