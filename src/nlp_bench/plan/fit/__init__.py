"""Constants of the time model from published points, and how well they predict what they have not seen."""
