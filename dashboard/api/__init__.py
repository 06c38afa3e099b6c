"""The REST API: the pages' queries, forms and acts, as JSON. Addresses and permissions are the pages' own."""
