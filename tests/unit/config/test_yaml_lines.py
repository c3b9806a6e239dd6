import pytest

from tuner.config.yaml_lines import dotted, line_of, read_yaml
from tuner.errors import StudyFileError


def data(text):
    return read_yaml(text, "x.yaml")[0]


def refused(text):
    with pytest.raises(StudyFileError) as caught:
        read_yaml(text, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize("word", ["off", "on", "yes", "no", "Off", "NO", "y", "n"])
def test_off_and_its_kin_are_words(word):
    assert data(f"a: {word}") == {"a": word}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("1e-3", 0.001),
        ("5E2", 500.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1.5e+2", 150.0),
        ("010", 10),
        ("-7", -7),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("2024-13-45", "2024-13-45"),
        ("1_000", "1_000"),
        ("0o17", "0o17"),
        ("~", None),
        ("null", None),
        ("''", ""),
        ("4.2.1", "4.2.1"),
        ("e3", "e3"),
        (".nan", ".nan"),
        ("-", [None]),
    ],
)
def test_a_plain_value_is_what_yaml_1_2_says_or_a_word(text, value):
    found = data(f"a:\n  {text}")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_every_key_and_item_has_its_line():
    text = "a: 1\n\nb:\n  c: [x,\n      y]\n  d:\n  - e: 2\n  - 3\n"
    assert read_yaml(text, "x.yaml")[1] == {
        ("a",): 1,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 4,
        ("b", "c", 1): 5,
        ("b", "d"): 6,
        ("b", "d", 0): 7,
        ("b", "d", 0, "e"): 7,
        ("b", "d", 1): 8,
    }


def test_a_missing_key_has_the_line_of_what_is_around_it():
    lines = {("a",): 1, ("a", "b"): 4}
    assert line_of(("a", "b", "c", 0), lines) == 4
    assert line_of(("a", "z"), lines) == 1
    assert line_of(("z",), lines) is None
    assert line_of((), lines) is None


def test_a_path_reads_as_people_write_it():
    assert dotted(()) == ""
    assert dotted(("objectives", 0, "maximize")) == "objectives[0].maximize"


def test_a_key_that_stands_twice_is_refused_with_both_lines():
    assert refused("a: 1\nb: 2\na: 3\n") == (
        "x.yaml:3: a: stands there twice (first in line 1): remove one"
    )
    assert refused("p:\n  a: 1\n  a: 1\n").startswith("x.yaml:3: p.a: stands there twice")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", "x.yaml:2: this is not YAML"),
        ("a: b: c\n", "x.yaml:1: this is not YAML"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: this is not YAML: but found another document"),
        ("a: \x00", "x.yaml: this is not YAML: unacceptable character"),
        ("a: *nothing", "x.yaml:1: this is not YAML: found undefined alias"),
        ("\ta: 1", "x.yaml:1: this is not YAML"),
        (
            "a: !!python/object:os.system x",
            "x.yaml:1: a: the tag !!python/object:os.system is not",
        ),
        ("a: !!set {x, y}", "x.yaml:1: a: the tag !!set is not for study files: remove it"),
        ("a: !!timestamp 2024-01-01", "x.yaml:1: a: the tag !!timestamp is not"),
        ("a: !mine 3", "x.yaml:1: a: the tag !mine is not for study files"),
        ("b: 0\na: !!int three", "x.yaml:2: this is not YAML: 'three' is no whole number"),
        ("a: !!float three", "x.yaml: a value cannot be read"),
        ("a: !!bool maybe", "x.yaml: a value cannot be read"),
        ("a: " + "9" * 5000, "x.yaml:1: this is not YAML: '99999999999999999999' is no whole"),
        ("b: 0\n1: 2", "x.yaml:2: the key '1' is no word: put it in quotes"),
        ("a: {null: 2}", "x.yaml:1: a: the key 'null' is no word"),
        ("a: {[1]: 2}", "x.yaml:1: a: the key "),
        ("a: &a [*a]", "x.yaml: is nested too deeply"),
        ("a: &a {b: *a}", "x.yaml: is nested too deeply"),
        ("[" * 3000, "x.yaml: is nested too deeply"),
    ],
)
def test_what_is_no_plain_data_is_refused(text, said):
    assert refused(text).startswith(said), refused(text)


def test_a_few_aliases_cannot_stand_for_billions_of_values():
    lines = ["a0: &a0 [1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 20)]
    assert "holds more than 20000 values" in refused("\n".join(lines))


def test_anchors_and_merges_work():
    assert data("a: &x {p: 1}\nb: {<<: *x, q: 2}\n") == {"a": {"p": 1}, "b": {"p": 1, "q": 2}}


def test_an_empty_text_is_nothing():
    assert read_yaml("", "x.yaml") == (None, {})
    assert read_yaml("# only a comment\n", "x.yaml") == (None, {})
