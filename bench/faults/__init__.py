"""Faults, one at a time, into whole tuned jobs: what became of the limits and of the job."""
