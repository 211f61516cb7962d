"""A cap for each GPU instead of a common one."""
