"""Offline benchmarks and the tools that made the package data; run from a checkout."""
