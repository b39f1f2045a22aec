"""How tables and plots are drawn, and the text of strangers made inert: shared by all rooms that print."""
