"""The wall on Linux: plan, then apply."""
