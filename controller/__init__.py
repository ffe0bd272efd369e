"""The controller of a node: publishes ResourceSlices and keeps them true."""
