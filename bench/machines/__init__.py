"""Machines drawn at random from what drivers, firmware, containers and other agents really do."""
