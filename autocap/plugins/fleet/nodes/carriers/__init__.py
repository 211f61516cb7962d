"""How the messages of a job's nodes travel: a command line for each engine, and on which nodes its agents run."""

import sys

AGENT = (
    sys.executable,
    "-P",
    "-m",
    "autocap.plugins.fleet.nodes.agent",
)  # -P: nothing is imported from the job's folder
NO_RAY = f"{sys.executable} has no Ray; install it, in the version of the cluster: pip install 'ray>=2.60,<3'"
