"""Look after a store: find what does not fit, mend it; dump it, and load it elsewhere.

    check --> findings --repair--> done, back, dead, ...
    dump ---> kept entries, line by line ---> load

The rest of the package does without this room, and imports it only when one of these is called.
"""
