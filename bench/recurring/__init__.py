"""Jobs that come again: batch sizes and caps chosen over many recurrences, against published rules and the truth."""
