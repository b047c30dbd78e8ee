"""Secure sums: only the total of the parties' vectors is ever revealed."""
