"""What stands behind `/_link/`: one small script and parser a verb."""
