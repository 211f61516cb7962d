"""One job on several nodes: an agent on each measures there and sets there, one controller decides for all."""
