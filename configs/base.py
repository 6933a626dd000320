"""The base model on WMT 2014 English-German (sections 3, 5 and 6.1): every key.

    python train.py --config=configs/base.py --workdir=runs/base

Hardware and time: the paper used 8 P100 for 12 hours (100,000 steps).
Published target: 27.3 tokenised BLEU on newstest2014 (about 26 in sacreBLEU, whose
tokenisation differs), 25.8 BLEU and perplexity 4.92 on newstest2013.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Every key of a run with the value of the paper's base model."""
    config = ConfigDict()
    config.model = model()
    config.data = data()
    config.train = train()
    config.decode = decode()
    return config


def model() -> ConfigDict:
    """The network (section 3, Table 3 row "base")."""
    model = ConfigDict()
    model.num_layers = 6  # N, in the encoder and in the decoder (3.1)
    model.d_model = 512  # width of every sub-layer output (3.1)
    model.d_ff = 2048  # inner width of the feed-forward network (3.3)
    model.num_heads = 8  # h (3.2.2)
    model.d_k = 64  # width of queries and keys per head (3.2.2)
    model.d_v = 64  # width of values per head (3.2.2)
    model.dropout = 0.1  # P_drop on sub-layer outputs and on the embeddings (5.4)
    model.positions = "sinusoidal"  # or "learned", Table 3 row E (3.5)
    model.max_positions = 256  # rows of the learned table; unused by sinusoids
    model.tie_embeddings = True  # source, target and pre-softmax share a table (3.4)
    model.norm = "post"  # LayerNorm(x + Sublayer(x)) (3.1); "pre" came later
    model.attention_dropout = 0.0  # on attention weights; came later
    model.ffn_dropout = 0.0  # after the ReLU; came later
    model.attention_bias = False  # biases in attention projections; came later
    model.vocab_rows_multiple = 1  # round the table's rows up to a multiple of this
    model.dtype = "float32"  # or "bfloat16": operands of matrix products
    model.attention = "einsum"  # or "dot_product": JAX's fused one, cuDNN on GPU
    return model


def data() -> ConfigDict:
    """The corpus, the vocabulary and the batches (section 5.1)."""
    data = ConfigDict()
    data.source = "tfds"  # "text": the six files below; "demo": generated sentences
    data.source_language = "en"
    data.target_language = "de"
    data.train_source = ""  # text files, one sentence a line, for data.source="text"
    data.train_target = ""
    data.validation_source = ""
    data.validation_target = ""
    data.test_source = ""
    data.test_target = ""
    data.tfds_name = "wmt14_translate/de-en"  # a TFDS translation set
    data.tfds_dir = ""  # where TFDS keeps prepared sets; "" is its own default
    data.tfds_manual_dir = ""  # folder with files already downloaded, for no network
    data.cache_dir = ""  # tokenised corpora; "" is the folder cache/ of the run
    data.vocab_model = ""  # a SentencePiece model to use; "" trains one
    data.vocab_size = 37000  # pieces, shared by both languages (5.1)
    data.vocab_sentences = 4000000  # at most so many lines train it; 0 is all
    data.vocab_max_bytes = 4192  # longer lines do not train the vocabulary
    data.max_tokens = 256  # longer pairs are left out of training; EOS counted
    data.plan = "bucket"  # pairs of similar length (5.1); or "pack" rows with several
    data.tokens_per_batch = 32768  # padded slots per side of one update; 25,000 real
    data.rows_multiple = 8  # rows of every batch divide by this
    data.bucket_widths = (16, 24, 32, 48, 64, 96, 128, 256)  # widths of "bucket"
    data.pack_width = 256  # width of a row of "pack"; at least the longest pair
    data.num_threads = 2  # threads that build batches
    data.num_workers = 0  # processes that build batches; 0 uses threads only
    data.prefetch = 4  # batches kept ready
    return data


def train() -> ConfigDict:
    """Optimiser, regularisation and the rhythm of a run (sections 5.2 to 5.4)."""
    train = ConfigDict()
    train.seed = 0
    train.num_steps = 100000  # updates (5.2)
    train.max_minutes = 0.0  # stop earlier, after so long in training; 0: no limit
    train.label_smoothing = 0.1  # epsilon_ls (5.4)
    train.learning_rate_factor = 1.0  # times d^-0.5 min(s^-0.5, s warmup^-1.5) (5.3)
    train.warmup_steps = 4000  # (5.3)
    train.adam_b1 = 0.9  # (5.3)
    train.adam_b2 = 0.98  # (5.3)
    train.adam_eps = 1e-9  # (5.3)
    train.accumulation_steps = 1  # an update's batch is computed in so many parts
    train.log_every = 100  # updates between lines of metrics
    train.validate_every = 5000  # updates between validations; 0: only at the end
    train.validation_sentences = 500  # translated for BLEU at validation; 0: none
    train.checkpoint_every_steps = 0  # updates between checkpoints; 0: by time only
    train.checkpoint_every_minutes = 10.0  # as in section 6.1; 0: by steps only
    train.keep_last = 20  # newest checkpoints kept
    train.keep_best = 1  # checkpoints kept for their validation perplexity
    return train


def decode() -> ConfigDict:
    """Beam search (section 6.1), and sampling instead of it."""
    decode = ConfigDict()
    decode.beam = 4  # hypotheses kept; 1 is greedy
    decode.alpha = 0.6  # length penalty ((5 + length) / 6)^alpha, EOS counted
    decode.min_length = 0  # pieces of the shortest output, EOS not counted
    decode.no_repeat_ngram = 0  # no n-gram of pieces twice in an output; 0: it may
    decode.temperature = 0.0  # above 0: draw from softmax(logits / temperature)
    decode.top_k = 0  # draw among the k likeliest pieces only; 0: all
    decode.top_p = 1.0  # draw among the likeliest that together have probability p
    decode.seed = 0  # of the draws
    decode.max_extra_tokens = 50  # longest output: source tokens plus this
    decode.max_source_tokens = 512  # longer lines are cut here, with a warning
    decode.tokens_per_batch = 8192  # padded source slots translated at a time
    return decode
