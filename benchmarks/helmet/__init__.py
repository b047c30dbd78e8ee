"""Blind averaging: local training, accuracy, convergence."""
