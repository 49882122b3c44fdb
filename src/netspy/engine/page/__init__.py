"""One request at work: fetched, judged, handed to the user's code, its yields stored, its end."""
