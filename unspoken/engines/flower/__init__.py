"""Roles over a Flower federation: the coordinator asks and a node answers, one signed message each, and no more.

`exchanges` has what is asked and answered, `session` the node's side, and `server` the coordinator's. None of them
needs Flower: the front door hands their bytes to it.
"""
