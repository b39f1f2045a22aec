"""A bid sheet: one page that commits to a predicted report time, and says what the prediction rests on."""
