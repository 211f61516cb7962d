"""What processes say to each other: bytes into lines, records into JSON and back, and the ends of connections."""
