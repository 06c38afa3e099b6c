"""What the pages show, gathered from the database: each module feeds one page or one part that pages share."""
