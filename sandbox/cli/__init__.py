"""The commands, a module a group; each imports only what it uses."""
