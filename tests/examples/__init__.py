"""What a plugin outside the package may look like."""
