"""The releases: the five kinds of results that become public at the end of a study.

All have one interface (`Release`): each predicts, is saved and is described in its own way.
"""

from unspoken.methods.releases.base import Release
from unspoken.methods.releases.estimator import FittedEstimator
from unspoken.methods.releases.linear import LinearModel
from unspoken.methods.releases.network import NetworkModel
from unspoken.methods.releases.statistics import NoModel, Statistics
from unspoken.methods.releases.weights import TorchWeights

__all__ = ["FittedEstimator", "LinearModel", "NetworkModel", "NoModel", "Release", "Statistics", "TorchWeights"]
