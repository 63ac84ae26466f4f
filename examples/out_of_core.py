"""
Larger than memory
==================

Rows are converted into a row store on disk, and softmax regression is fitted with neither the rows nor the weights ever
in memory as a whole. The data here would fit a thousand times; the calls are those for a hundred gigabytes.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from manyclass import LinearClassifier, OutOfCore
from manyclass.datasets import make_many_classes
from manyclass.io.store import RowStore, write_store

X, y = make_many_classes(6000, 2000, 60, random_state=0)
with tempfile.TemporaryDirectory() as folder:
    write_store(Path(folder) / "train.store", X[:5000].astype(np.float32), y[:5000], shard_rows=1000)
    store = RowStore(Path(folder) / "train.store")  # reads the manifest, and no row
    print(store)

    solver = OutOfCore(Path(folder) / "train.blocks", block_classes=20, window_bytes=1 << 20, certificate="epoch")
    model = LinearClassifier(solver=solver, alpha=1e-4, max_iter=15, tol=1e-2, random_state=0).fit(store)
    accuracy = model.score(X[5000:].astype(np.float32), y[5000:])  # block by block
    files = sorted(Path(folder).glob("*/*.safetensors"))
    sizes = {f"{file.parent.name}/{file.name}": file.stat().st_size / 1024 for file in files}

# %%
# The model in blocks has its own certificate, and predicts what a model in memory predicts.

whole = LinearClassifier(alpha=1e-4, tol=1e-2, random_state=0, fit_intercept=model.fit_intercept)
whole.fit(X[:5000], y[:5000])
print(f"accuracy {accuracy:.3f} from disk, {whole.score(X[5000:], y[5000:]):.3f} in memory")

figure, (curve, disk) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
model.history_.plot(curve, against="iteration")
curve.set_title("the gap, certified after each epoch")
disk.barh(list(sizes), list(sizes.values()))
disk.tick_params(axis="y", labelsize=7)
disk.set(xlabel="KiB", title="what is on disk")
disk.invert_yaxis()
plt.show()
