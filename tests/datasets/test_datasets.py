import gzip
import hashlib
from collections import Counter

import pytest

from palearn import datasets
from palearn.errors import FileFormatError


@pytest.fixture(scope="module")
def a9a():
    return list(datasets.a9a())


def test_the_shipped_file_is_the_published_one_byte_for_byte():
    content = gzip.decompress(datasets.path("a9a").read_bytes())
    assert hashlib.sha256(content).hexdigest() == "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"


def test_a9a_has_the_published_counts(a9a):
    assert len(a9a) == datasets.DATASETS["a9a"].rows == 32_561
    assert Counter(record.label for record in a9a) == {1: 7_841, -1: 24_720}
    assert sum(len(record.features) for record in a9a) == 451_592
    assert {value for record in a9a for value in record.features.values()} == {1.0}


def test_a9a_comes_in_file_order_with_features_named_in_the_files_order(a9a):
    with gzip.open(datasets.path("a9a"), "rt", encoding="ascii") as lines:
        first = next(lines).split()
    numbers = [int(item.split(":")[0]) for item in first[1:]]
    names = datasets.names("a9a")
    assert list(a9a[0].features) == [names[number - 1] for number in numbers]
    assert a9a[0].label == int(first[0])


def test_the_names_of_a9a_are_123_and_belong_to_the_14_attributes_of_adult():
    names = datasets.names("a9a")
    assert len(set(names)) == len(names) == 123
    assert names[0] == "age=quintile1"
    assert names[122] == "native-country=Holand-Netherlands"
    assert len({name.split("=")[0] for name in names}) == 14


def test_names_and_values_agree_with_counts_published_for_adult(a9a):
    counts = Counter(name for record in a9a for name in record.features)
    assert counts["sex=Female"] == 10_771
    assert counts["race=Black"] == 3_124
    assert counts["occupation=Exec-managerial"] == 4_066
    assert counts["native-country=Holand-Netherlands"] == 1
    occupations = sum(n for name, n in counts.items() if name.startswith("occupation="))
    assert len(a9a) - occupations == 1_843  # the people whose occupation is unknown


def test_an_example_has_at_most_one_value_of_an_attribute(a9a):
    for record in a9a:
        attributes = [name.split("=")[0] for name in record.features]
        assert len(set(attributes)) == len(attributes)


@pytest.fixture(scope="module")
def internet_ads():
    return list(datasets.internet_ads())


def test_internet_ads_has_the_published_shape(internet_ads):
    assert len(internet_ads) == datasets.DATASETS["internet_ads"].rows == 1_966
    assert Counter(record.label for record in internet_ads) == {1: 368, -1: 1_598}
    assert {value for record in internet_ads for value in record.features.values()} == {1.0}
    rows = {(frozenset(record.features), record.label) for record in internet_ads}
    assert len(rows) == len(internet_ads)  # no duplicates


def test_the_names_of_internet_ads_are_as_many_a_place_as_uci_says():
    names = datasets.names("internet_ads")
    assert len(set(names)) == len(names) == 1_555
    places = Counter(name.partition("*")[0] for name in names)
    assert places == {"local": 1, "url": 457, "origurl": 495, "ancurl": 472, "alt": 111, "caption": 19}
    assert (names[1], names[4]) == ("url*images+buttons", "url*hydrogeologist")


def test_names_of_internet_ads_belong_to_their_columns(internet_ads):
    # An address of an image holds its host and the host's domain alike, or the columns would be another's.
    for record in internet_ads:
        if "url*www.geocities.com" in record.features:
            assert "url*geocities.com" in record.features
        if "ancurl*ad.doubleclick.net" in record.features:
            assert "ancurl*doubleclick.net" in record.features
    served = [record.label for record in internet_ads if "ancurl*ad.doubleclick.net" in record.features]
    assert sum(label == 1 for label in served) > 0.9 * len(served) > 0


def test_every_data_set_tells_its_licence_and_source_and_ships_its_attribution():
    readme = datasets.path("a9a").with_name("README.md").read_text(encoding="utf-8")
    for name, dataset in datasets.DATASETS.items():
        assert f"## {name}:" in readme
        for told in (dataset.licence, dataset.source, dataset.file, dataset.names_file):
            assert told in readme


@pytest.mark.parametrize("function", [datasets.path, datasets.names])
def test_an_unknown_name_is_refused_with_the_known_ones(function):
    with pytest.raises(FileFormatError, match=r"'adult' is not shipped with palearn; there are: a9a, internet_ads"):
        function("adult")
