"""Instruments: they measure, search and compare, and are no part of what the suite claims."""
