"""The claim as a transaction: plan, prepare, unprepare, reconcile, recover."""
