"""The launcher and its commands: specs, the walls, what people and programs call."""
