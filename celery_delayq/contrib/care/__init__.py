"""Takes care of a store: diagnoses it, checks and repairs it, and moves it.

    doctor     checks each requirement
    mending    check and repair
    dumping ---> lines ---> loading
    resharding --> copying   moves it to another number of shards

It is imported on first use: by its commands ``doctor``, ``check``, ``dump``, ``load`` and
``reshard``, and by the methods of ``DelayQ`` that do the same.
"""
