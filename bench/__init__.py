"""One file a question, each beside a direct-connection baseline."""
