"""Doorway to the rooms behind a fetch: `netspy.network.middleware`."""
