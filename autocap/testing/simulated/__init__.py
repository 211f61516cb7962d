"""A job, its cards and its meter in virtual time: for benchmarks and tests."""
