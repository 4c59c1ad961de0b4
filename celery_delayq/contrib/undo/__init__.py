"""The undo of a cancel: what was cancelled waits again, as it was.

    cancel.lua --a line of each--> undo, undo_old --undo.lua--> the entries

The setting ``delayq_undo`` says for how long, and of how many tasks, lines are kept. A line depends
on nothing else in the store.
"""
