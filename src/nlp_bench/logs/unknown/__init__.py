"""What a line of a program that nobody knows says by its names and units, and how sure that is."""
