"""Deploys, and a store that is emptied, with thousands of tasks that wait; see README.md."""
