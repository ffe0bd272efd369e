"""CDI specs: how they are built, and where they are kept."""
