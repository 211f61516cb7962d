"""Pretended clusters on one machine: nodes under Slurm or Ray with an emulated NVML board each, and a job in lock step
on all of them."""
