"""What emulated and simulated devices share: published profiles and how sensors read."""
