"""Guarantees of plans, and the noise for a wanted guarantee. Nothing here sees data."""
