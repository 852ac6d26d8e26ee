#!/usr/bin/env python3
# tags: integration slow
# limit: 1800
"""structured_output.py with 500 answers."""
from structured_output import begin

if __name__ == "__main__":
    begin(500)
