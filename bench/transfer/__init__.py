"""What is known of a job on one card says of another, judged on published measurements."""
