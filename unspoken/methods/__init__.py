"""The published systems, each in a file of its own that reads like its paper's algorithm."""
