"""Hostile clients of the helper: what they say, and what must hold whatever they say."""
