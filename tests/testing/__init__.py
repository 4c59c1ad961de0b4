"""The helper with which users test their own tasks, on their own app, without a server."""
