"""`python -m bench budget nodes`: one budget over four pretended nodes, and what becomes of it."""
