"""The order of a call, written straight down as a script of commands."""
