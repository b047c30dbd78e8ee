"""The figures of the cross-silo paper, and the speed of a round."""
