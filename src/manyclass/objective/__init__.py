"""The objective that every solver minimizes, its dual, and the duality gap."""
