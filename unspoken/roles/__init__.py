"""A whole study from one actor's side, without input or output: party, coordinator, helper.

A role takes bytes and gives bytes to send. Engines add transport, processes and clocks.
"""
