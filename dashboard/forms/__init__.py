"""What people may change, checked field by field: an error names its field and says what is allowed."""
