"""A helper that serves an emulated machine in a process of its own, and those who talk to it."""
