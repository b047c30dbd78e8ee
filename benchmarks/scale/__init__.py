"""Simulations larger than a process: what the engines cost."""
