"""The run directory: events and samples on disk, written once, read by all."""
