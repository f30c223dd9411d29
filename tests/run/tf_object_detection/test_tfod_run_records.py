"""The order of records follows from a seed, and can be entered anywhere. Plain TensorFlow; the API is not needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oomproof.errors import InputError

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow

RECORDS = 25


@pytest.fixture(autouse=True)
def _seeded() -> None:
    tf.random.set_seed(1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("records")
    for place in range(3):
        with tf.io.TFRecordWriter(str(folder / f"part-{place}")) as writer:
            for number in range(place, RECORDS, 3):
                writer.write(f"{number} {'x' * number}".encode())
    return str(folder / "part-*")


def reader(**given: Any) -> Any:
    values = {
        "shuffle": True, "filenames_shuffle_buffer_size": 10, "shuffle_buffer_size": 8, "num_readers": 2,
        "read_block_length": 2, "sample_1_of_n_examples": 1, "sample_from_datasets_weights": [], **given,
    }  # fmt: skip
    return SimpleNamespace(**values)


def taken(files: str, count: int, *, seed: int = 3, first: int = 0, **given: Any) -> list[tuple[int, int]]:
    from oomproof.run.tf_object_detection.records import read_records

    records = read_records(tf, [files], reader(**given), seed, first).take(count)
    return [(int(number), int(record.numpy().split()[0])) for number, record in records]


def test_every_epoch_has_each_record_once_in_an_order_of_its_own(files: str) -> None:
    seen = [record for _, record in taken(files, 3 * RECORDS)]
    epochs = [seen[place * RECORDS : (place + 1) * RECORDS] for place in range(3)]
    assert all(sorted(epoch) == list(range(RECORDS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [record for _, record in taken(files, RECORDS, seed=4)] != epochs[0]


@pytest.mark.parametrize("first", [0, 1, RECORDS - 1, RECORDS, 2 * RECORDS + 7])
def test_it_goes_on_where_it_was(files: str, first: int) -> None:
    whole = taken(files, first + 20)
    assert taken(files, 20, first=first) == whole[first:]


def test_weights_mix_files_in_an_order_that_can_be_entered_too(files: str) -> None:
    from oomproof.run.tf_object_detection.records import read_records

    given = reader(sample_from_datasets_weights=[0.5, 0.5])
    patterns = [files.replace("*", "0"), files.replace("*", "1")]
    whole = [record.numpy() for _, record in read_records(tf, patterns, given, 3, 0).take(30)]
    later = [record.numpy() for _, record in read_records(tf, patterns, given, 3, 10).take(20)]
    assert later == whole[10:]


def test_without_shuffling_records_come_as_they_are(files: str) -> None:
    numbers = [record for _, record in taken(files.replace("*", "0"), 9, shuffle=False)]
    assert numbers == list(range(0, RECORDS, 3))


def test_what_is_drawn_for_a_record_hangs_on_its_number_alone(files: str) -> None:
    from oomproof.run.tf_object_detection.records import _Numbered, read_records

    def augment(record: Any) -> Any:
        random = tf.random.uniform([]) + tf.cast(tf.random.uniform([], 0, 5, tf.int32), tf.float32)
        flipped = tf.cond(tf.random.uniform([]) > 0.5, lambda: random, lambda: -random)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            [50, 50, 3], [[[0.1, 0.1, 0.9, 0.9]]], min_object_covered=0.1
        )
        return flipped + tf.cast(begin[0] + 7 * size[1], tf.float32)

    def draws(first: int) -> list[Any]:
        numbered = _Numbered(tf, read_records(tf, [files], reader(), 3, first), 3)
        return [batch.numpy().tolist() for batch in numbered.map(augment, 4).batch(5).take(4)]

    whole = draws(0)
    assert draws(0) == whole, "in parallel, and yet the same"
    assert draws(10) == [*whole[2:], *draws(20)[:2]]
    assert len({value for batch in whole for value in batch}) > 15


def test_files_that_are_not_there_or_damaged_are_named(files: str, tmp_path: Path) -> None:
    from oomproof.run.tf_object_detection.records import count_records

    with pytest.raises(InputError, match=r"no file matches .*nothing-\*"):
        taken(str(tmp_path / "nothing-*"), 1)
    empty = tmp_path / "empty.record"
    empty.write_bytes(b"")
    with pytest.raises(InputError, match="hold no records"):
        taken(str(empty), 1)
    whole = Path(files.replace("*", "0")).read_bytes()
    damaged = tmp_path / "cut.record"
    damaged.write_bytes(whole[:-5])
    with pytest.raises(InputError, match="middle of a record"):
        count_records(tf, str(damaged))
    damaged.write_bytes(b"not a record at all")
    with pytest.raises(InputError, match="not a TFRecord file"):
        count_records(tf, str(damaged))
