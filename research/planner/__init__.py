"""How the constants of the planner are fitted to published measurements; no part of the package."""
