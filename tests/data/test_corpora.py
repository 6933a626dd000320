"""Where pairs come from: files, prepared sets, and what is said when there are none."""

import dataclasses
import http.server
import json
import shutil
import socket
import threading
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from transformer.config import DataConfig
from transformer.data import corpora
from transformer.data.corpora import load_split
from transformer.errors import UserError


class WordPairs(tfds.core.GeneratorBasedBuilder):
    """A translation set of somebody else's, with texts that trip up readers."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First."}
    TEXTS = (
        'tab\t\uffe8 ||| @@ ##AT##-##AT## "q", ',
        "a\u2028b\u0085c\rd",
        "",
        "last",
    )

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.Translation(languages=("de", "en")),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number, words in enumerate(self.TEXTS):
            yield number, {"de": words.upper(), "en": words}


@pytest.fixture
def word_pairs(multi30k_config: DataConfig, tmp_path: Path) -> DataConfig:
    """A configuration of that set."""
    return dataclasses.replace(
        multi30k_config, tfds_name="word_pairs", tfds_dir=str(tmp_path / "tfds")
    )


@pytest.fixture
def dead_proxy(monkeypatch) -> str:
    """All web traffic goes to a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, address)
        monkeypatch.setenv(name.upper(), address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    return address


def test_any_translation_set_is_read_as_it_is(word_pairs):
    """No character of a text separates fields or lines, whatever the set."""
    text = load_split(word_pairs, "train")
    assert text.sources == list(WordPairs.TEXTS)
    assert text.targets == [words.upper() for words in WordPairs.TEXTS]
    assert (text.source_name, text.target_name) == (
        "word_pairs:train.en",
        "word_pairs:train.de",
    )


def test_text_that_is_not_utf8_is_named_by_its_number(word_pairs, monkeypatch):
    """The example is said, not an offset into a buffer."""
    monkeypatch.setattr(
        WordPairs,
        "_generate_examples",
        lambda self: iter(
            [(0, {"de": "a", "en": "a"}), (1, {"de": b"\xe9", "en": ""})]
        ),
    )
    with pytest.raises(UserError, match=r"word_pairs:train\.de, example 2: .*UTF-8"):
        load_split(word_pairs, "train")


def test_unknown_splits_and_languages_are_answered_with_the_known(prepared_multi30k):
    """The sentence lists what there is."""
    config = prepared_multi30k
    with pytest.raises(UserError, match="train, validation, test_2016_flickr"):
        load_split(config, "dev")
    with pytest.raises(UserError, match="'cs', but multi30k has en, de, fr"):
        load_split(dataclasses.replace(config, target_language="cs"), "train")


def test_a_set_in_another_format_is_refused_with_advice(prepared_multi30k, tmp_path):
    """TFDS writes TFRecord by default, which only TensorFlow reads."""
    copy = tmp_path / "multi30k" / "1.0.0"
    shutil.copytree(Path(prepared_multi30k.tfds_dir) / "multi30k" / "1.0.0", copy)
    info = json.loads((copy / "dataset_info.json").read_text())
    info["fileFormat"] = "tfrecord"
    (copy / "dataset_info.json").write_text(json.dumps(info))
    config = dataclasses.replace(prepared_multi30k, tfds_dir=str(tmp_path))
    with pytest.raises(UserError, match="another format; .*tfds_dir"):
        load_split(config, "test")


def test_a_damaged_set_is_named_with_its_folder(word_pairs):
    """The user is told what to delete."""
    load_split(word_pairs, "train")
    (data,) = Path(word_pairs.tfds_dir).rglob("*array_record-*")
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"word_pairs/1\.0\.0 cannot be read .*delete"):
        load_split(word_pairs, "train")


@pytest.mark.parametrize("tensorflow", [False, True])
def test_no_network_is_said_at_once(
    multi30k_config, tmp_path, monkeypatch, dead_proxy, tensorflow
):
    """Elsewhere minutes of retries ended in a traceback; advice comes instead."""
    monkeypatch.setattr(corpora, "_needs_tensorflow", lambda builder: not tensorflow)
    config = dataclasses.replace(
        multi30k_config, tfds_name="wmt14_translate/de-en", tfds_dir=str(tmp_path)
    )
    reason = "no network" if tensorflow else "needs TensorFlow"
    with pytest.raises(UserError, match=f"{reason}.*tfds_manual_dir.*source=text"):
        load_split(config, "train")
    assert not any(tmp_path.iterdir())


def test_multi30k_without_a_network_is_said_at_once(
    multi30k_config, tmp_path, dead_proxy
):
    """The file that could not be had is named; a later try starts afresh."""
    config = dataclasses.replace(multi30k_config, tfds_dir=str(tmp_path))
    with pytest.raises(UserError, match="train.en.gz cannot be .*source=text"):
        load_split(config, "train")
    assert not list(tmp_path.glob("multi30k/1*"))


def test_a_server_that_refuses_is_asked_few_times(
    multi30k_config, tmp_path, monkeypatch, dead_proxy
):
    """A server that answers 503 was asked eleven times a file, with ever longer waits.

    The answer goes through the proxy that the environment names, as downloads do.
    """
    asked: list[str] = []

    class Refusal(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(503)

        do_HEAD = do_GET

        def log_message(self, *arguments):
            pass

    monkeypatch.setattr(corpora, "_needs_tensorflow", lambda builder: False)
    config = dataclasses.replace(
        multi30k_config, tfds_name="wmt14_translate/de-en", tfds_dir=str(tmp_path)
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(UserError, match="could not be prepared: .*source=text"):
            load_split(config, "train")
        server.shutdown()
    files = [path for path in asked if path.endswith((".tgz", ".tar"))]
    assert files
    assert max(map(files.count, files)) <= 3
    assert not list(tmp_path.glob("wmt14_translate/de-en/1*"))


def test_an_unknown_set_is_named(multi30k_config, tmp_path):
    """The key and its value are in the sentence."""
    config = dataclasses.replace(
        multi30k_config, tfds_name="nonsense/de-en", tfds_dir=str(tmp_path)
    )
    with pytest.raises(UserError, match="data.tfds_name='nonsense/de-en'"):
        load_split(config, "train")


def test_a_manual_folder_that_is_none_is_named(multi30k_config, tmp_path):
    """Before anything is downloaded."""
    config = dataclasses.replace(
        multi30k_config, tfds_dir=str(tmp_path), tfds_manual_dir=str(tmp_path / "no")
    )
    with pytest.raises(UserError, match=r"data\.tfds_manual_dir=.* is not a folder"):
        load_split(config, "train")


def test_local_files_never_touch_the_network(tiny_config, tmp_path, monkeypatch):
    """Training on two files works without one; elsewhere a download came first."""

    def refuse(*arguments, **keywords):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(corpora, "_tfds_split", refuse)
    (tmp_path / "s").write_text("a\nb\n")
    (tmp_path / "t").write_text("A\nB\n")
    config = dataclasses.replace(
        tiny_config.data,
        train_source=str(tmp_path / "s"),
        train_target=str(tmp_path / "t"),
    )
    assert load_split(config, "train")[:2] == (["a", "b"], ["A", "B"])


def test_text_files_that_are_not_given_are_asked_for(tiny_config):
    """Every missing path is named by its key."""
    with pytest.raises(UserError, match=r"data\.validation_source is empty"):
        load_split(tiny_config.data, "validation")
    with pytest.raises(UserError, match="only train, validation and test"):
        load_split(tiny_config.data, "dev")
