"""Iterations counted by the training process itself, in memory shared with it."""
