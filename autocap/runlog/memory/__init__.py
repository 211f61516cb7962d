"""What earlier runs of a job have shown, kept in the user's state directory: a file a job, safe to delete."""
