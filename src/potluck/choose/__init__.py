"""Choose a method for data that nobody prepared: look, propose, tune, compare, advise."""
