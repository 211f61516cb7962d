"""`python -m bench prices`: caps that follow what electricity costs."""
