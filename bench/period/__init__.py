"""python -m bench period: the period detector against signals whose period is known."""
