"""Studies across machines: how fast messages move, and what they cost in memory."""
