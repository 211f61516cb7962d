"""How the messages of a job's nodes travel: a command line for each engine, and on which nodes its agents run."""
