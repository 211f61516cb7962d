"""python -m bench node: the whole machine's power, against Koszczał et al. 2023."""
