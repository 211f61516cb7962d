"""python -m bench tables: caps found by sweeps against the published tables, and the fit behind the profiles."""
