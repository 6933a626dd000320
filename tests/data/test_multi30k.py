"""Laws of the Multi30k builder: its files, all of them, or nothing."""

import dataclasses
import gzip
import hashlib
import http.client
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.config import DataConfig
from transformer.data import multi30k
from transformer.data.corpora import load_split
from transformer.data.multi30k import CHECKSUMS, SPLITS
from transformer.data.text import read_records
from transformer.errors import UserError


@pytest.fixture
def one_split(monkeypatch) -> None:
    """The set shrinks to a small split, where which one does not matter."""
    for name in [name for name in SPLITS if name != "validation"]:
        monkeypatch.delitem(SPLITS, name)


@pytest.mark.parametrize(
    ("split", "stem", "count"),
    [
        ("train", "train", 29_000),
        ("validation", "val", 1_014),
        ("test", "test_2016_flickr", 1_000),
        ("test_2017_mscoco", "test_2017_mscoco", 461),
    ],
)
def test_the_set_is_its_files(prepared_multi30k, shared_data, split, stem, count):
    """Every line in its place, in two of the three languages."""
    config = dataclasses.replace(prepared_multi30k, target_language="fr")
    text = load_split(config, split)
    assert len(text.sources) == count
    assert text.sources == read_records(shared_data / "multi30k" / f"{stem}.en")
    assert text.targets == read_records(shared_data / "multi30k" / f"{stem}.fr")


def test_preparing_and_reading_need_no_tensorflow(
    multi30k_config: DataConfig, shared_data: Path, tmp_path: Path
):
    """Nothing imports it, and standard output is left for results."""
    program = (
        "import sys; from configs import multi30k; "
        "from transformer.config import Config; "
        "from transformer.data.corpora import load_split; "
        "from transformer.data.multi30k import SPLITS; "
        "SPLITS.pop('train'); SPLITS.pop('validation'); "
        "config = multi30k.get_config(); "
        "config.data.tfds_dir, config.data.tfds_manual_dir = sys.argv[1:]; "
        "text = load_split(Config.from_dict(config).data, 'test'); "
        "assert 'tensorflow' not in sys.modules; "
        "sys.stdout.write(str(len(text.sources)))"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", program),
            *(str(tmp_path / "tfds"), str(shared_data / "multi30k")),
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1000"


def test_an_altered_file_is_refused_and_nothing_is_prepared(
    multi30k_config, tmp_path: Path
):
    """A checksum guards every file, and its name is in the sentence."""
    manual, data = tmp_path / "manual", tmp_path / "data"
    manual.mkdir()
    for name in CHECKSUMS:
        (manual / f"{name}.gz").write_bytes(gzip.compress(b"something else\n"))
    config = dataclasses.replace(
        multi30k_config, tfds_dir=str(data), tfds_manual_dir=str(manual)
    )
    with pytest.raises(UserError, match=r"train\.en\.gz is not the file of Multi30k"):
        load_split(config, "train")
    (manual / "train.en").write_text("something else\n")
    with pytest.raises(UserError, match=r"train\.en is not the file of Multi30k"):
        load_split(config, "train")
    assert not list(data.glob("multi30k/1*"))


def test_packed_files_are_as_good_as_plain(shared_data: Path, tmp_path, monkeypatch):
    """A packed file is checked before and after it is unpacked."""
    plain = (shared_data / "multi30k" / "val.en").read_bytes()
    packed = gzip.compress(plain)
    (tmp_path / "val.en.gz").write_bytes(packed)
    sums = (hashlib.sha256(packed).hexdigest(), CHECKSUMS["val.en"][1])
    monkeypatch.setitem(CHECKSUMS, "val.en", sums)
    assert multi30k._records("val.en", tmp_path)[-1] == plain.decode().splitlines()[-1]
    monkeypatch.setitem(CHECKSUMS, "val.en", (sums[0], CHECKSUMS["val.de"][1]))
    with pytest.raises(UserError, match="is not the file of Multi30k"):
        multi30k._records("val.en", tmp_path)


@pytest.mark.parametrize(
    "failure", [OSError("no route"), http.client.IncompleteRead(b"half")]
)
def test_a_broken_download_is_explained(tmp_path, monkeypatch, failure):
    """No network, or one that stops half-way: the files and what to do are named."""

    def refuse(*arguments, **keywords):
        raise failure

    monkeypatch.setattr(multi30k.urllib.request, "urlopen", refuse)
    with pytest.raises(
        UserError,
        match=r"neither train\.en nor .*\.gz.* cannot be downloaded .*manual_dir",
    ):
        multi30k._records("train.en", tmp_path)


def test_files_that_are_not_at_hand_are_downloaded(
    multi30k_config, shared_data: Path, tmp_path, monkeypatch, one_split
):
    """Without a folder of files every one comes, checked, from the repository."""
    asked = []

    def serve(url, timeout):
        name = url.rsplit("/", 1)[1]
        asked.append(url)
        plain = (shared_data / "multi30k" / name.removesuffix(".gz")).read_bytes()
        return io.BytesIO(gzip.compress(plain, mtime=0))

    for name in ("val.en", "val.de", "val.fr"):
        packed = serve(f"/{name}.gz", 0).read()
        sums = (hashlib.sha256(packed).hexdigest(), CHECKSUMS[name][1])
        monkeypatch.setitem(CHECKSUMS, name, sums)
    asked.clear()
    monkeypatch.setattr(multi30k.urllib.request, "urlopen", serve)
    config = dataclasses.replace(multi30k_config, tfds_dir=str(tmp_path))
    assert len(load_split(config, "validation").sources) == 1014
    assert len(set(asked)) == 3
    assert all(url.startswith("https://raw.githubusercontent.com/") for url in asked)


def test_an_interrupted_preparation_leaves_nothing_behind(
    multi30k_config, shared_data: Path, tmp_path, monkeypatch, one_split
):
    """Elsewhere half a download was taken for the whole one at the next try."""
    config = dataclasses.replace(
        multi30k_config,
        tfds_dir=str(tmp_path),
        tfds_manual_dir=str(shared_data / "multi30k"),
    )
    generate = multi30k.Multi30k._generate_examples

    def interrupted(self, *sides):
        for key, example in generate(self, *sides):
            if key == 100:
                raise KeyboardInterrupt
            yield key, example

    with monkeypatch.context() as patch:
        patch.setattr(multi30k.Multi30k, "_generate_examples", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_split(config, "validation")
    assert len(load_split(config, "validation").sources) == 1014


def test_checksums_cover_every_file():
    """Three languages of five splits, each with two different sums."""
    assert set(CHECKSUMS) == {
        f"{s}.{e}" for s in SPLITS.values() for e in "en de fr".split()
    }
    sums = [one for pair in CHECKSUMS.values() for one in pair]
    assert len(set(sums)) == 30
    assert all(len(one) == 64 for one in sums)
