"""The compiled inner loops, and the row view they share."""
