"""A node at work: seeding, fetch slots, callbacks, item buffer, lease keeper, shutdown. It knows contracts only."""
