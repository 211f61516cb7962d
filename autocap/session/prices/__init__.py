"""What a kilowatt-hour costs or emits as time goes on: where that is read, and the record of what is known of it."""
