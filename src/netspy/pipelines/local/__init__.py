"""Files on this machine that several processes append to."""
