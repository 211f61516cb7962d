"""A job that comes again: which batch size its next recurrence takes, learnt from what the earlier ones cost."""
