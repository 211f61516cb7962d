"""Events to a Summary, and the Summary to documents and pictures, as text and HTML; a live view; Prometheus."""
