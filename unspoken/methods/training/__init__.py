"""The training of PyTorch models in rounds.

It is the workload of `cross-silo`, `fedavg` and `fedsgd`, and of `local`, `central` and `none` where a study's [method]
names a `model`. Gradients or updates are clipped, so records need no bound.
"""
