"""Runs the commands that READMEs of ``deploy/scenarios`` and pages of ``docs`` show, on a cluster."""
