"""Plots as data, and the two ways to draw them: inline SVG for the page, matplotlib for files."""
