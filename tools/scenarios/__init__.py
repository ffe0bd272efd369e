"""Runs what READMEs of ``deploy/scenarios`` and pages of ``docs`` show: their own blocks, on a cluster."""
