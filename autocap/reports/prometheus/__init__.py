"""What a run says to Prometheus. The exporter alone needs the official client."""
