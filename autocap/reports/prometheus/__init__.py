"""What a run says to Prometheus, and the dashboard that shows it. The exporter alone needs the official client."""
