"""How tables, pages and plots are drawn; shared by all packages that print."""
