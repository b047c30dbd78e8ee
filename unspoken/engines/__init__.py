"""What drives a method: an engine moves bytes between parties, helpers and coordinator, and knows nothing else."""
