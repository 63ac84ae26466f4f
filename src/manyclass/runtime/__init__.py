"""What everything stands on: threads, memory limits and atomic files."""
