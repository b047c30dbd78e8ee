"""The speed of secure sums and of exact noise."""
