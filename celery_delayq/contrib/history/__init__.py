"""Lists the last things that happened to tasks.

    one task: scripts --> history          --+
    many:     scripts --> history_changes  --+--> newest --> DelayQ.history, ``delayq history``
                      +-> history_parts    --+    if you ask for one change, or one task

Scripts write these lists of the store if ``delayq_history``, the number to keep of each, is set. So
a change of many is one line, and its tasks push no other event out.
"""
