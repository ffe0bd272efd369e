"""Objects as they are shown to people: tables, rows, events."""
