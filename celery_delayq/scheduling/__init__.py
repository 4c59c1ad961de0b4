"""In: from a call to an entry of the store."""
