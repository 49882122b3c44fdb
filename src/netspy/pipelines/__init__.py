"""Where items are kept, and how they get there."""
