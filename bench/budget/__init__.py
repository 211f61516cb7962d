"""`python -m bench budget`: many jobs under one power budget, in virtual time."""
