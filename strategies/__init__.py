"""The built-in search strategies, one a file; imported as `autocap.strategies`."""
