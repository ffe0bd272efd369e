"""The admission webhook, a process of its own: judges configurations before they are stored."""
