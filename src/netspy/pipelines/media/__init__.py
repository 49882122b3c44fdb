"""Downloaded files: under which key, in which folder or bucket."""
