"""python -m bench scenarios: what goes wrong in real jobs, at random."""
