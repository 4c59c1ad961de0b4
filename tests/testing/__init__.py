"""The helper with which users test their own tasks, on an app of theirs that has no server."""
