"""Thin shells that perform the core's commands; no policy lives here."""
