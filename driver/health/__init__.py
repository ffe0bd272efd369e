"""What is wrong with a GPU, by one rule set: problems and events become verdicts, these become taints."""
