"""Learning in the directions of public records."""
