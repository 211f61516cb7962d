"""An agent: finds the job on its own node, samples there, sets there what it is told, and puts back whatever happens.

python -m autocap.plugins.fleet.nodes.agent [--number N | --spare]    lines of `nodes.protocol` on stdin and stdout
"""
