"""A node's end of a budget over several nodes: its own manager, with a part that is leased.

python -m autocap.plugins.fleet.multinode.node [options]    lines of `nodes.protocol` on stdin and stdout
"""
