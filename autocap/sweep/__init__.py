"""A static profile: the command run once per cap and repeat, on one or several sets of GPUs.

`schedule` says which run is next, `measuring` what one run used, `statistics` what several of one cap come to,
`summary` what the whole sweep does, `document` how that is shown. `plan`, `running` and `session` join these with
devices, the command and the run directory.
"""
