"""python -m bench fuzz: hostile clients of the helper."""
