"""Values to verdicts; no bytes are read here."""
