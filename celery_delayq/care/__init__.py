"""The care of a store: look whether all is well, mend what is not, and move it.

    doctor     a question for each thing that has to be right
    mending    check and repair
    dumping ---> lines ---> loading

Nothing else of this package needs it. It is imported when it is used: by the CLI's commands
``doctor``, ``check``, ``dump`` and ``load``, and by the methods of ``DelayQ`` of these names.
"""
