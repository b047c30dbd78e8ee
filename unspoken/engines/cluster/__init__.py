"""Simulations on a Ray cluster: blocks of parties are tasks, helpers are actors, records are in the object store.

Ray moves objects as pickles, and the secrets of all parties travel with the tasks. So this engine is for simulations
only, on a cluster that its user may trust like their own machine. A study with a roster of real parties is refused.
"""
