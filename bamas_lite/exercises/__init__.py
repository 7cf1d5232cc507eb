"""Self-checks of the notebooks' exercises: each says right, or gives a hint, and never the answer."""
