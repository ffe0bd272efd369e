"""What prepare and unprepare do for each kind of device."""
