"""Joins job, devices, guardian, controller and run log into one tuned run: run, attach, autocap.tune."""
