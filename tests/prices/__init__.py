"""Where prices and carbon are read."""
