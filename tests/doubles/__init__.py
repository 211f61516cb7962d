"""Stand-ins and recordings that several tests share."""
