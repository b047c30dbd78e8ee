"""Simulations on a Ray cluster: blocks of parties are tasks, helpers are actors, records are in the object store.

Ray moves objects as pickles, and the secrets of all parties travel with the tasks. So this is for simulations only, on
a cluster that whoever runs it may use as their own: it is refused for a study with a roster of real parties.
"""
