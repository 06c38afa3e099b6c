"""Forms of the pages. Each error names its field and says what is allowed."""
