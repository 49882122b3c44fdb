"""netspy tasks: tasks pushed, counted, listed, tried again."""
