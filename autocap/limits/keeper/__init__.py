"""The keeper: under sudo, the only process beside its watchdog that has root's rights. It sets limits for a session
that is its user's alone, and opens for it what root alone may open."""
