"""Measures what the store's Redis takes."""
