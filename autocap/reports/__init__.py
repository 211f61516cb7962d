"""Events to a Summary, and the Summary to words, tables, pictures, pages, a live view, Prometheus."""
