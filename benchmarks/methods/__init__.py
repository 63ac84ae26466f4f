"""Methods of manyclass, one file each; the same shape as `benchmarks.peers`."""
