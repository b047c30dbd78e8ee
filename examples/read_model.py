"""Predicts with a model file of cross-silo training, without unspoken and without PyTorch: numpy and pandas do.

    python read_model.py MODEL.npz RECORDS

RECORDS is a CSV file with the study's columns, or an NPZ file with X. It prints a JSON list. For the models "linear"
and "mlp"; any other is a module of your own, whose `load_state_dict` takes the arrays of the file (all but
"unspoken") as tensors.
"""

import json
import sys

import numpy as np
import pandas as pd


def vectors(table, about):
    """The numbers that the model takes, one row a record of a table."""
    columns = []
    for rule in about["features"]:
        values = table[rule["column"]]
        empty = values.isna()
        if "scale" in rule:
            low, high = rule["scale"]
            if rule["kind"] == "date":
                values = pd.to_datetime(values).map(lambda day: day.toordinal(), na_action="ignore")
            fill = (low + high) / 2 if rule["fill"] is None else rule["fill"]
            numbers = values.astype(float).fillna(fill).clip(low, high)
            columns.append((numbers - low) / (high - low) * 2 - 1)
        elif "equals" in rule:
            columns.append(values.where(~empty, rule["fill"]) == rule["equals"])
        elif "other" in rule:
            columns.append(~values.isin(rule["other"]) & ~empty)
        else:
            columns.append(empty)
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)


def predict(model, records):
    with np.load(model) as saved:
        about = json.loads(str(saved["unspoken"]))
        arrays = [saved[name] for name in saved.files if name != "unspoken"]
    if about["model"] not in ("linear", "mlp"):
        raise SystemExit(f"{model}: is a model of the kind {about['model']}, which needs its own module.")
    rows = np.load(records)["X"] if records.endswith(".npz") else vectors(pd.read_csv(records), about)
    rows = rows.reshape(len(rows), -1)
    if about["constant"] is not None:
        rows = np.hstack([rows, np.full((len(rows), 1), about["constant"])])
    longer = np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / about["norm"])
    scores = rows / longer
    layers = list(zip(arrays[::2], arrays[1::2], strict=True))
    for number, (weight, bias) in enumerate(layers):
        scores = scores @ weight.T + bias
        if number < len(layers) - 1:
            scores = np.maximum(scores, 0)
    if about["classes"] is not None:
        return [about["classes"][best] for best in scores.argmax(axis=1)]
    low, high = about["label_bounds"]
    return (low + (np.clip(scores * longer, -1, 1)[:, 0] + 1) / 2 * (high - low)).tolist()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(json.dumps(predict(*sys.argv[1:])))
