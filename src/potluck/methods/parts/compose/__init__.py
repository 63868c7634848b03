"""The parts of a composed method (`methods/compose.py`), by the question that each answers."""
