"""The admission webhook, a process of its own: it checks configurations before they are stored."""
