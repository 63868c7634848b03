"""Read what runs wrote: one run's figures, its clients, and which runs belong together."""
