"""Multi30k (Elliott et al. 2016, 2017) as a TFDS set that needs no TensorFlow.

29,000 English image captions with their German and French translations, a validation
set and three test sets, raw text. The data are for non-commercial research.
"""

import gzip
import hashlib
import http.client
import io
import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from transformer.data.text import iter_records
from transformer.errors import UserError

logger = logging.getLogger(__name__)

LANGUAGES = ("en", "de", "fr")
SPLITS = {
    "train": "train",
    "validation": "val",
    "test_2016_flickr": "test_2016_flickr",
    "test_2017_flickr": "test_2017_flickr",
    "test_2017_mscoco": "test_2017_mscoco",
}

_ORIGIN = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
_SECONDS = 10  # without an answer from the network

# SHA-256 of each file as it is published (.gz) and unpacked.
CHECKSUMS = {
    "test_2016_flickr.de": (
        "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
        "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    ),
    "test_2016_flickr.en": (
        "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    ),
    "test_2016_flickr.fr": (
        "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
        "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    ),
    "test_2017_flickr.de": (
        "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
        "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
    ),
    "test_2017_flickr.en": (
        "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
        "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
    ),
    "test_2017_flickr.fr": (
        "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
        "6f3764e31dac41e9455e612958bcfd4e877c5e15cd66df2c2b2be6d9bd83e5b6",
    ),
    "test_2017_mscoco.de": (
        "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
        "58277df3c75f92f7145a11b910b553d1cf82c439249d4dc237c899609eafac22",
    ),
    "test_2017_mscoco.en": (
        "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
        "43051fdfa86fd5395182e718a94ca67b1b227b9f7c79596ff0f6b813216981d2",
    ),
    "test_2017_mscoco.fr": (
        "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0",
        "39cde3f43f32b0a6bf29ce4917a46329ff32e53070c2fac87506695a740ae0a0",
    ),
    "train.de": (
        "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    ),
    "train.en": (
        "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    ),
    "train.fr": (
        "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
        "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    ),
    "val.de": (
        "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    ),
    "val.en": (
        "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    ),
    "val.fr": (
        "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
        "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    ),
}


class Multi30k(tfds.core.GeneratorBasedBuilder):
    """English, German and French; every example has all three languages."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Task 1, raw text, with the corrections up to 2026-07."}

    name = "multi30k"

    def _info(self) -> tfds.core.DatasetInfo:
        """Names the languages."""
        return self.dataset_info_from_configs(
            description="Image captions in English, German and French.",
            homepage="https://github.com/multi30k/dataset",
            features=tfds.features.Translation(languages=LANGUAGES),
            disable_shuffling=True,  # examples stay in the files' order
            license="non-commercial research and education",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
        """Fetches every file before the first example is written."""
        # TFDS's own manager retries for minutes without a network and wants TensorFlow
        # to unpack; files given by hand may be packed or not, and its public property
        # refuses a folder that does not exist, as the default one seldom does.
        folder = Path(dl_manager._manual_dir)
        texts = {
            (split, language): _records(f"{stem}.{language}", folder)
            for split, stem in SPLITS.items()
            for language in LANGUAGES
        }
        return {
            split: self._generate_examples(
                *(texts[split, language] for language in LANGUAGES)
            )
            for split in SPLITS
        }

    def _generate_examples(self, *sides: list[str]) -> Iterator:
        """Numbers the examples by line."""
        for number, records in enumerate(zip(*sides, strict=True)):
            yield number, dict(zip(LANGUAGES, records, strict=True))


def _records(name: str, folder: Path) -> list[str]:
    """The lines of one file, from `folder` or downloaded, its checksum verified."""
    packed_sum, sum_ = CHECKSUMS[name]
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        content, where = plain.read_bytes(), str(plain)
    elif packed.exists():
        where = str(packed)
        content = gzip.decompress(_verified(packed.read_bytes(), packed_sum, where))
    else:
        where = _ORIGIN + packed.name
        content = gzip.decompress(_verified(_download(packed), packed_sum, where))
    return list(iter_records(io.BytesIO(_verified(content, sum_, where)), where))


def _verified(content: bytes, checksum: str, name: str) -> bytes:
    """The content, if it is what it should be."""
    if hashlib.sha256(content).hexdigest() != checksum:
        raise UserError(
            f"{name} is not the file of Multi30k that this builder knows (its SHA-256 "
            f"differs from {checksum[:12]}...): fetch it again"
        )
    return content


def _download(place: Path) -> bytes:
    """A file of the dataset's repository, in memory: half of one is kept nowhere."""
    url = _ORIGIN + place.name
    logger.info("downloading %s", url)
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            return answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"{place.parent} has neither {place.stem} nor {place.name}, and {url} "
            f"cannot be downloaded ({error}): get the files of data/task1/raw by hand "
            "and set --config.data.tfds_manual_dir=DIR, or set "
            "--config.data.tfds_dir=DIR to where the set is prepared, or train on two "
            "text files with --config.data.source=text"
        ) from error
