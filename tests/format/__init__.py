"""The stored format, frozen: every later version reads the data that an earlier one wrote to Redis.

    python -m tests.format      fill a store, and write format/vN.json and format/vN.dump.jsonl anew

A release that changes the stored format freezes the next number. Older files never change.
"""
