"""Published points as configurations, and predictions of them."""
