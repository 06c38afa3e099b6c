"""Queries for the pages: each module reads the data of one page, or of one part that several pages share."""
