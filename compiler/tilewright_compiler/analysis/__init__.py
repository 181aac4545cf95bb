"""Facts about tile IR; an analysis never changes it."""
