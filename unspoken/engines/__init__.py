"""Engines run a study: they move bytes between parties, helpers and the coordinator. What the bytes mean is the roles'
business."""
