"""From samples and marks to a Measurement with its errors; pauses, drift, idle power, running totals."""
