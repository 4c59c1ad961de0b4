"""Reports to the store that a run which holds a unique key has begun, goes on, or has ended.

    message with a hold --> the worker's Request --begun, retried, ended--> Reporter --> the store

``watching`` sees in the worker's main process how each run goes; ``reporting`` sends the words.
"""
