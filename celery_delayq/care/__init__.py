"""The care of a store: whether all is well, what does not fit, and how it moves.

    doctor     a question for each thing that has to be right
    mending    check and repair
    dumping ---> lines ---> loading

Nothing else of this package needs it. It is imported when it is used: by the CLI's commands
``doctor``, ``check``, ``dump`` and ``load``, and by the methods of ``DelayQ`` that do the same.
"""
