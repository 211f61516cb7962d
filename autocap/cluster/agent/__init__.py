"""An agent: finds the job on its own node, samples there, sets there what it is told, and puts back whatever happens.

python -m autocap.cluster.agent [--number N | --spare]    lines of `autocap.cluster.protocol` on stdin and stdout
"""
