"""What the events and the Summary say, in words."""
