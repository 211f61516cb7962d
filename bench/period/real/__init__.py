"""Signals like those that real cards show of real jobs, and what the detector makes of them."""
