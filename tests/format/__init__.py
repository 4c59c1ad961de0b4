"""The stored format, frozen: what a version left in Redis is read by every later one.

    python -m tests.format      fill a store, and write format/vN.json and format/vN.dump.jsonl anew

A release that changes the stored format freezes the next number; the older files stay as they are.
"""
