"""What a fit leaves behind: linear, staged and sharded models; saving and loading them."""
