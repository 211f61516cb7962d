"""What a run on one card lets expect of the same job on others, and at other caps."""
