"""A node's end of a budget over several nodes: its own manager, with a part that is leased.

python -m autocap.site.node [options]    lines of `autocap.cluster.protocol` on stdin and stdout
"""
