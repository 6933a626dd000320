"""One file per experiment; `base.py` holds every key."""
