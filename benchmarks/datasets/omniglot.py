"""Omniglot, two small sets of alphabets: 3 630 images of 242 characters, 28 x 28 means of 105 x 105 bits, dense."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from benchmarks.data import Missing, Split, encode

FILES = ("omniglot/images_background_small1.zip", "omniglot/images_background_small2.zip")
SOURCE = "python/images_background_small1.zip and ..small2.zip of the omniglot repository"

_SIDE = 28
#: Drawers 1 to 15 are for training.
_TRAIN = 15


def build(folder: Path, variant: str) -> Split:
    try:
        from PIL import Image
    except ImportError as error:
        raise Missing("omniglot is PNG files: pip install pillow") from error
    images: dict[tuple[str, str], np.ndarray] = {}
    for file in FILES:
        with zipfile.ZipFile(folder / file) as archive:
            for name in archive.namelist():
                if name.endswith(".png"):
                    alphabet, character, drawing = name.split("/")[-3:]
                    # A set has alphabets of the other: the same files.
                    image = Image.open(io.BytesIO(archive.read(name))).convert("L")
                    small = image.resize((_SIDE, _SIDE), Image.Resampling.BOX)
                    images[f"{alphabet}/{character}", drawing] = 1 - np.asarray(small, np.float32).ravel() / 255
    keys = sorted(images)
    X = np.stack([images[key] for key in keys])
    labels = np.array([character for character, _ in keys])
    train = np.array([int(drawing.rsplit("_", 1)[1][:2]) <= _TRAIN for _, drawing in keys])
    y, y_test = encode(labels[train], labels[~train])
    return Split(X[train], y, X[~train], y_test)
