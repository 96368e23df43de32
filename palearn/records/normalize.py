"""From a value's fields, in whatever it was written, to a record: texts, bags, booleans and nulls become numbers."""

from numbers import Real
from typing import Any

from palearn.errors import RecordError
from palearn.records.libsvm import parse_libsvm
from palearn.records.record import MAX_NAME, Record, brief, check_id, check_label, name_too_long, number
from palearn.records.value_format import ValueFormat


def from_fields(fields: dict[str, Any], form: ValueFormat) -> Record:
    """Return the record that a value's fields are.

    Parameters
    ----------
    fields
        Names, as the topic has them, and what they hold: dicts, lists, texts, numbers, booleans and None.
    form
        The topic's.

    Raises
    ------
    RecordError
        A field holds what it may not.
    """
    if form.fields:
        names = {name: name for name in (*Record.__struct_fields__, "x")} | dict(form.fields)
        if "x" in form.fields.values():
            del names["x"]  # it is another field here, not dense features
        fields = {name: fields.get(called) for name, called in names.items()}
    label = fields.get("label")
    check_label(label)
    identity = fields.get("id")
    check_id(identity)
    weight = fields.get("weight")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {brief(weight)}")
    time = fields.get("time")
    record = Record(
        label=label,
        features=_features(fields),
        views=_views(fields.get("views")),
        id=identity,
        weight=None if weight is None else number("weight", weight),
        time=time if isinstance(time, str | int | float) else None,
    )
    return in_view(record, form.view)


def in_view(record: Record, view: str | None) -> Record:
    """Make the features those of a view, where the topic brings one."""
    if view is not None:
        if record.views is not None:
            raise RecordError("bad_view", f"a record of this topic has the view {view!r} in its features, not 'views'")
        if record.features is not None:
            record.views, record.features = {view: record.features}, None
    return record


def _features(fields: dict[str, Any]) -> dict[str, float] | None:
    features, dense = fields.get("features"), fields.get("x")
    if features is None and dense is not None:
        if not isinstance(dense, list):
            raise RecordError("bad_features", f"'x' must be a list of numbers, got {brief(dense)}")
        return numbers("x", {str(i): item for i, item in enumerate(dense)})
    if isinstance(features, str):
        return parse_libsvm(features.split())
    return None if features is None else numbers("features", features)


def _views(views: Any) -> dict[str, dict[str, float]] | None:
    if views is None:
        return None
    if not isinstance(views, dict):
        raise RecordError("bad_view", f"'views' must map a view's name to its features, got {brief(views)}")
    return {view: numbers(f"view {view!r}", features) for view, features in views.items() if features is not None}


def numbers(where: str, features: Any) -> dict[str, float]:
    """Return feature values as numbers: booleans, one-hot strings, bags and nulls resolved, order kept."""
    if not isinstance(features, dict):
        raise RecordError("bad_features", f"{where} must map names to values, got {brief(features)}")
    out: dict[str, float] = {}
    for name, item in features.items():
        if not isinstance(name, str):
            raise RecordError("bad_features", f"{where}: a feature's name must be text, got {brief(name)}")
        if isinstance(item, str):
            out[f"{name}={item}"] = out.get(f"{name}={item}", 0.0) + 1.0
        elif isinstance(item, Real):
            out[name] = out.get(name, 0.0) + number(name, item)
        elif isinstance(item, list):
            if len(name) > MAX_NAME:  # it would be repeated with every word
                raise name_too_long(len(name))
            for word in item:
                if not isinstance(word, str):
                    raise RecordError(
                        "bad_features", f"feature {name[:60]!r}: a bag holds text only, got {brief(word)}"
                    )
                out[f"{name}={word}"] = out.get(f"{name}={word}", 0.0) + 1.0
        elif item is not None:
            raise RecordError(
                "bad_features", f"feature {name[:60]!r} must be a number, boolean, text, list of text or null"
            )
    return out
