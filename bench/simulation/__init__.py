"""Whole jobs and sweeps on the simulated device, in virtual time."""
