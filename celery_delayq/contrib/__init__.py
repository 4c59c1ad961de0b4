"""Support for other packages; import its modules where you need them."""
