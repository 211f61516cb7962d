"""python -m bench strategies: search strategies on curves and on whole jobs."""
