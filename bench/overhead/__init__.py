"""python -m bench overhead: what the controller and the step hook cost."""
