import collections
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from transformer.config import Config, DataConfig
from transformer.data.packing import PACK_WINDOW
from transformer.data.plans import Plan, epoch_plan, evaluation_plan
from transformer.errors import UserError

PLANS = ("bucket", "pack")


@pytest.fixture(params=PLANS)
def config(request: pytest.FixtureRequest, tiny_config: Config) -> DataConfig:
    """Both kinds of plan: 64 to 8 slots a row, 256 slots a batch, rows in fours."""
    return dataclasses.replace(tiny_config.data, plan=request.param)


def random_lengths(num_pairs: int, longest: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of both sides, some of each extreme."""
    random = np.random.default_rng(num_pairs)
    lengths = random.integers(1, longest + 1, size=(2, num_pairs))
    lengths[:, : num_pairs // 2] //= 4
    lengths = np.maximum(lengths, 1)
    lengths[:, -1] = longest
    return lengths[0], lengths[1]


def contents(plan: Plan) -> list[tuple]:
    """All batches as comparable values."""
    return [
        (batch.pairs.tolist(), batch.rows.tolist(), batch[2:])
        for batch in map(plan.__getitem__, range(len(plan)))
    ]


@pytest.mark.parametrize("num_pairs", [1, 3, 59, 103, 2 * PACK_WINDOW + 5])
def test_every_pair_stands_in_the_plan_once(config: DataConfig, num_pairs: int) -> None:
    """An epoch is each pair exactly once, and no batch is all padding.

    Elsewhere workers repeated each other's examples, a remainder was dropped, and
    batches of nothing but padding were counted as updates.
    """
    for plan in (
        epoch_plan(config, 0, 0, *random_lengths(num_pairs)),
        evaluation_plan(config, *random_lengths(num_pairs)),
    ):
        seen = collections.Counter(
            pair for batch in contents(plan) for pair in batch[0]
        )
        assert seen == {pair: 1 for pair in range(num_pairs)}
        assert all(batch[0] for batch in contents(plan))


@pytest.mark.parametrize("num_pairs", [1, 103, 2 * PACK_WINDOW + 5])
def test_no_row_holds_more_than_its_width(config: DataConfig, num_pairs: int) -> None:
    """On either side the tokens of a row fit into it, and rows are used in order."""
    lengths = random_lengths(num_pairs)
    for plan in (epoch_plan(config, 1, 2, *lengths), evaluation_plan(config, *lengths)):
        for index in range(len(plan)):
            batch = plan[index]
            assert batch.rows.min() == 0 and batch.rows.max() < batch.num_rows
            assert set(np.diff(batch.rows).tolist()) <= {0, 1}
            widths = (batch.source_width, batch.target_width)
            for side, width in zip(lengths, widths, strict=True):
                used = np.bincount(batch.rows, weights=side[batch.pairs])
                assert used.max() <= width


def test_a_bucket_is_no_wider_than_its_pairs_need(tiny_config: Config) -> None:
    """A bucket's row holds one pair, and a batch is as wide as its longest pair needs.

    Pairs of the next narrower width may fill it up; only one batch has empty rows.
    """
    config = tiny_config.data
    lengths = random_lengths(500)
    plan = epoch_plan(config, 0, 0, *lengths)
    partly_empty = 0
    for index in range(len(plan)):
        batch = plan[index]
        assert len(set(batch.rows.tolist())) == len(batch.rows)
        longest = np.maximum(*lengths)[batch.pairs].max()
        widths = [width for width in config.bucket_widths if width >= longest]
        assert batch.source_width == batch.target_width == widths[0]
        partly_empty += len(batch.pairs) < batch.num_rows
    assert partly_empty <= 1


def test_packed_rows_are_spread_evenly(tiny_config: Config) -> None:
    """No packed batch is left nearly empty: rows in use differ by one at most."""
    config = dataclasses.replace(tiny_config.data, plan="pack", tokens_per_batch=1024)
    plan = epoch_plan(config, 0, 0, *random_lengths(103))
    in_use = [int(plan[index].rows.max()) + 1 for index in range(len(plan))]
    assert len(plan) > 1
    assert max(in_use) - min(in_use) <= 1


def test_shapes_are_few_and_the_same_in_every_epoch(config: DataConfig) -> None:
    """A plan has at most one shape for each width, so a run has few compilations.

    Elsewhere each new length, or the last batch of a file, was compiled anew. All
    shapes, the largest too, are known before the first update and keep to the budget.
    """
    lengths = random_lengths(999)
    plans = [epoch_plan(config, 0, epoch, *lengths) for epoch in range(4)]
    num_widths = 1 if config.plan == "pack" else len(config.bucket_widths)
    for plan in plans:
        assert plan.shapes == plans[0].shapes
        assert plan.shapes == {batch[2] for batch in contents(plan)}
        assert len(plan.shapes) <= num_widths
        for rows, source_width, target_width in plan.shapes:
            assert rows % config.rows_multiple == 0
            assert rows * max(source_width, target_width) <= config.tokens_per_batch
            assert (rows + config.rows_multiple) * source_width > (
                config.tokens_per_batch
            )


def test_the_plan_is_a_function_of_seed_and_epoch(config: DataConfig) -> None:
    """The same seed and epoch give the same plan; another of either, another one."""
    lengths = random_lengths(200)
    plan = contents(epoch_plan(config, 3, 5, *lengths))
    assert plan == contents(epoch_plan(config, 3, 5, *lengths))
    assert plan != contents(epoch_plan(config, 3, 6, *lengths))
    assert plan != contents(epoch_plan(config, 4, 5, *lengths))
    # (seed, epoch) must not be confused with (epoch, seed) or with their sum.
    assert plan != contents(epoch_plan(config, 5, 3, *lengths))
    assert plan != contents(epoch_plan(config, 4, 4, *lengths))


def test_threads_and_workers_do_not_change_the_plan(config: DataConfig) -> None:
    """How batches are built has no part in what they hold."""
    lengths = random_lengths(200)
    other = dataclasses.replace(config, num_threads=7, num_workers=3, prefetch=9)
    first, second = (epoch_plan(one, 0, 0, *lengths) for one in (config, other))
    assert contents(first) == contents(second)


def test_epochs_mix_the_pairs_anew(config: DataConfig) -> None:
    """Two epochs share few batch neighbours, and batches do not come by length."""
    lengths = random_lengths(2000)

    def neighbours(epoch: int) -> set[tuple[int, int]]:
        plan = epoch_plan(config, 0, epoch, *lengths)
        return {
            (min(pair), max(pair))
            for batch in contents(plan)
            for pair in zip(batch[0], batch[0][1:], strict=False)
        }

    first, second = neighbours(0), neighbours(1)
    assert len(first & second) < 0.1 * len(first)
    plan = epoch_plan(config, 0, 0, *lengths)
    means = [np.mean(lengths[1][plan[i].pairs]) for i in range(len(plan))]
    drift = np.corrcoef(np.arange(len(plan)), means)[0, 1]
    assert abs(drift) < 0.2


def test_a_batch_is_random_access(config: DataConfig) -> None:
    """Batches read in any order are those read in sequence; beyond the end is none."""
    plan = epoch_plan(config, 0, 0, *random_lengths(300))
    sequence = contents(plan)
    for index in reversed(range(len(plan))):
        batch = plan[index]
        found = (batch.pairs.tolist(), batch.rows.tolist(), batch[2:])
        assert found == sequence[index]
    for index in (-1, len(plan)):
        with pytest.raises(IndexError):
            plan[index]


def test_a_host_takes_its_rows_and_leaves_the_rest(config: DataConfig) -> None:
    """The hosts' parts in a row are the batch; an uneven division is refused."""
    plan = epoch_plan(config, 0, 0, *random_lengths(103))
    for index in range(len(plan)):
        batch = plan[index]
        parts = [batch.share(host, 4) for host in range(4)]
        assert all(part.num_rows == batch.num_rows // 4 for part in parts)
        pairs = np.concatenate([part.pairs for part in parts])
        rows = [part.rows + i * part.num_rows for i, part in enumerate(parts)]
        np.testing.assert_array_equal(pairs, batch.pairs)
        np.testing.assert_array_equal(np.concatenate(rows), batch.rows)
    with pytest.raises(ValueError, match="3 hosts"):
        plan[0].share(0, 3)


def test_the_plan_counts_its_tokens(config: DataConfig) -> None:
    """Slots, real tokens and their quotient are those of the batches."""
    source_lengths, target_lengths = random_lengths(300)
    plan = epoch_plan(config, 0, 0, source_lengths, target_lengths)
    batches = [plan[index] for index in range(len(plan))]
    assert plan.slots == sum(batch.num_rows * batch.source_width for batch in batches)
    assert plan.real_tokens == (source_lengths.sum(), target_lengths.sum())
    source, target = plan.padding_efficiency
    assert source == pytest.approx(source_lengths.sum() / plan.slots)
    assert target == pytest.approx(target_lengths.sum() / plan.slots)
    text = plan.describe()
    assert f"300 pairs in {len(plan)} batches" in text
    assert f"{100 * target:.1f} % real target tokens" in text
    for rows, width, _ in plan.shapes:
        assert f"{rows} x {width}" in text


def test_an_over_long_pair_is_named(config: DataConfig) -> None:
    """One outlier stops the run at its start with its number and lengths, not hours in.

    Elsewhere a 2,000-token pair among thousands ended a run for want of memory.
    """
    source_lengths, target_lengths = random_lengths(5000, longest=40)
    target_lengths[-1] = 2000
    with pytest.raises(UserError, match=r"pair 4999 has 40 source and 2000 target"):
        epoch_plan(config, 0, 0, source_lengths, target_lengths)


def test_no_pairs_make_no_plan(config: DataConfig) -> None:
    """An empty corpus is refused at once instead of an endless wait for a batch."""
    empty = np.zeros(0, dtype=np.int32)
    with pytest.raises(UserError, match="no sentence pairs"):
        epoch_plan(config, 0, 0, empty, empty)
    with pytest.raises(UserError, match="no sentence pairs"):
        evaluation_plan(config, empty, empty)


def test_a_budget_below_the_fewest_rows_is_refused(config: DataConfig) -> None:
    """Four rows of 64 do not fit into 255 slots: the sentence has all three numbers."""
    config = dataclasses.replace(config, tokens_per_batch=255)
    with pytest.raises(UserError, match=r"255.*=4 rows of 64 slots are 256"):
        epoch_plan(config, 0, 0, *random_lengths(10))


@pytest.mark.parametrize("num_pairs", [1, 8, 59])
@pytest.mark.parametrize("multiple", [1, 8])
def test_evaluation_rows_divide_among_devices(
    tiny_config: Config, num_pairs: int, multiple: int
) -> None:
    """1, 8 or 59 pairs become rows in multiples of 8, no more than those pairs need.

    Elsewhere the last evaluation batch did not divide by the devices and stopped a run.
    """
    config = dataclasses.replace(tiny_config.data, rows_multiple=multiple)
    plan = evaluation_plan(config, *random_lengths(num_pairs))
    for rows, _, _ in plan.shapes:
        assert rows % multiple == 0
        assert rows < num_pairs + multiple


def test_evaluation_leaves_no_long_pair_out(tiny_config: Config) -> None:
    """A validation pair beyond the widest bucket gets a wider one, twice as wide or so.

    Elsewhere the first validation, after hours of training, ended the run.
    """
    source_lengths, target_lengths = random_lengths(20)
    source_lengths[7] = 2000
    plan = evaluation_plan(tiny_config.data, source_lengths, target_lengths)
    assert 7 in plan[0].pairs
    assert plan[0][2:] == (4, 2048, 2048)
    assert len(plan.shapes) <= 1 + len(tiny_config.data.bucket_widths)


@pytest.fixture(scope="module")
def captions(shared_data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Lengths in words of the 29,000 image captions, EOS counted."""
    sides = []
    for language in ("en", "de"):
        text = (shared_data / "multi30k" / f"train.{language}").read_bytes()
        lines = text.decode("utf-8").split("\n")[:-1]
        sides.append(np.array([len(line.split()) + 1 for line in lines]))
    return sides[0], sides[1]


def test_packing_leaves_little_padding_on_captions(
    tiny_config: Config, captions: tuple[np.ndarray, np.ndarray]
) -> None:
    """Rows of 64 are at least 96 % real tokens on the longer side of this corpus."""
    config = dataclasses.replace(
        tiny_config.data, plan="pack", tokens_per_batch=4096, rows_multiple=8
    )
    plan = epoch_plan(config, 0, 0, *captions)
    assert len(plan.pairs) == 29000
    assert max(plan.padding_efficiency) > 0.96
    assert plan.shapes == {(64, 64, 64)}


def test_buckets_leave_little_padding_on_captions(
    tiny_config: Config, captions: tuple[np.ndarray, np.ndarray]
) -> None:
    """Buckets in steps of four to eight are at least 80 % real tokens there."""
    config = dataclasses.replace(
        tiny_config.data,
        tokens_per_batch=4096,
        rows_multiple=8,
        bucket_widths=(8, 12, 16, 20, 24, 32, 48, 64),
    )
    plan = epoch_plan(config, 0, 0, *captions)
    assert max(plan.padding_efficiency) > 0.8
    assert len(plan.shapes) <= 8
