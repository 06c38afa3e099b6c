"""What the API says of each kind of row."""
