"""A static profile: the command run once per cap and repeat, on one or several sets of GPUs.

`schedule` says which run is next, `running` what one run used, `summary` what several of one cap, and the whole sweep,
come to, `document` how that is shown. `session` joins these with devices, the command and the run directory.
"""
