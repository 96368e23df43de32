"""Which columns of a file models know, and how each is read, so that a row means the same in every file."""

from collections.abc import Iterable

from palearn.models.keyed import Models

#: Kinds beside those of :data:`palearn.records.KINDS`: a number, or a truth value, or else a text.
VALUE = "value"


def known_columns(models: Models) -> dict[str, str]:
    """Return each column that models know: as it was when they were made, else as their features show.

    A feature ``x`` is a number's or a truth value's, ``code=17`` a text's; what a column has been taken for where the
    models were made from a file (``records.columns``, a replay) stands above that.
    """
    return shown_columns(models.vocabulary.names[models.vocabulary.biases :]) | dict(models.settings.columns)


def shown_columns(names: Iterable[str]) -> dict[str, str]:
    """Return the columns that features of these names come from, and the kind of each."""
    whole = set(names)
    out: dict[str, str] = {}
    for name in whole:
        at = name.find("=", 1)
        while at > 0:
            out[name[:at]] = "text"
            at = name.find("=", at + 1)
    for name in whole:
        as_text = f"{name}=true" in whole or f"{name}=false" in whole
        out[name] = "number" if as_text else VALUE
    return out
