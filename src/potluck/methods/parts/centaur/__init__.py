"""Parts of Centaur and its baselines, AP and UCD."""
