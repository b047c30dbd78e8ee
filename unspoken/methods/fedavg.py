"""DP-FedAvg (McMahan et al. 2018), a baseline: parties train alone and send clipped updates; protects whole parties."""

from __future__ import annotations

from unspoken.methods.planning.mechanisms import NoiseShares
from unspoken.methods.training.averaging import ClippedUpdates
from unspoken.methods.training.base import TrainingMethod
from unspoken.methods.training.options import FederatedOptions
from unspoken.methods.workloads import Workload


class FedAvg(TrainingMethod):
    """Federated averaging of clipped updates, private for whole parties."""

    name = "fedavg"
    summary = "a baseline: DP-FedAvg, clipped updates of whole parties"
    keys = FederatedOptions
    noise = NoiseShares()

    def make_workload(self) -> Workload:
        return ClippedUpdates(self.study, self.study.options("method", FederatedOptions))
