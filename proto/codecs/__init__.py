"""Bytes to values and back; nothing is decided here."""
