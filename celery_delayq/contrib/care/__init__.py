"""Takes care of a store: diagnoses it, checks and repairs it, and moves it.

    doctor     checks each requirement
    mending    check and repair
    dumping ---> lines ---> loading
    resharding --> copying   moves it to another number of shards
    upgrading  raises the format of its records

It is imported on first use: by its commands ``doctor``, ``check``, ``dump``, ``load``,
``reshard`` and ``upgrade``, and by the methods of ``DelayQ`` that do the same.
"""
