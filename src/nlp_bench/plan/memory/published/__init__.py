"""Peak memory of other frameworks, by what is published of them."""
