"""Operations beside the core's; a module is imported when its method of ``DelayQ`` is first used.

    DelayQ ---> bulk       schedule_many
            --> edits      edit
            --> pauses     pause, resume, pauses; and holder, free of unique keys
            --> status, health
            --> selection  select ---> RewritableSelection: edits and releases many tasks, too
    cli ------> all of them, and the leaves' commands

No module here uses a Redis key.
"""
