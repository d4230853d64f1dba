"""Small helpers that everybody uses: names, files written whole, signals, ranges. Imports nothing of ours."""
