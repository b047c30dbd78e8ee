"""Second moments in secure sums: accuracy."""
