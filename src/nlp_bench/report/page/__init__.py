"""One HTML file with everything about a report: no network, no library, light and dark, screen, phone and paper."""
