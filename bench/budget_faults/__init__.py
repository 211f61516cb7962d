"""Faults into a power budget of real processes: manager, supervisor, tuner, jobs, above one emulated machine."""
