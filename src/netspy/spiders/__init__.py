"""The classes that users inherit."""
