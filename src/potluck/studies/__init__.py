"""Studies: questions about models and methods that one run does not answer. `potluck study NAME` asks them."""
