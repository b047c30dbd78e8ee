"""The figures of the CAPE paper, and the speed of capeFM."""
