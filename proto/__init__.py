"""The wire's core: bytes and events in, commands and values out.

Nothing in here does I/O, reads a clock, draws random numbers or looks at the
environment (`tests/test_layering.py` holds that).  Three layers, arrows down only:
`calls` and `verbs` (the order of a conversation) use `policy` (values to
verdicts) and `codecs` (bytes to values and back).
"""
