#!/usr/bin/env python3
"""Text made by spillway-serve on the card, and models on two cards: tokens, bits and speed."""
import json
import re

from .beyond import BITS, judged, not_run, part, same_bits, shape_of
from .machine import BUILD, CORPUS, require
from .techniques import settings_of, train

# layers, width, heads, context, steps of training, requests, tokens of each
LARGE = {"layers": 24, "width": 1024, "heads": 16, "context": 512, "steps": 20, "requests": 64, "tokens": 128}
SMALL = {"layers": 4, "width": 64, "heads": 2, "context": 64, "steps": 20, "requests": 8, "tokens": 24}
TOKENS = "greedy tokens"
TWO_CARDS = "two cards"
BLOCK = 16  # tokens of a block of the cache
# Of two tokens whose logarithms of probability are nearer than this, a batch that rounds otherwise may take either.
TIE = 1e-4


def shape_for(machine):
    return SMALL if machine.simulated else LARGE


def model_of(setting):
    """A model of bytes that has learned a little, so that no two tokens are as likely."""
    shape, folder = shape_for(setting.machine), setting.folder / "model"
    settings = [f"model.{key}={shape[key]}" for key in ("layers", "width", "heads", "context")]
    train(setting.machine, setting.folder, [*settings, f"train.steps={shape['steps']}", "train.batch=8",
                                            "evaluation.windows=1", f"run.save={folder}"])
    return folder


def requests_of(setting):
    """Prompts of several lengths, from the text."""
    shape, text = shape_for(setting.machine), CORPUS.read_bytes().decode("ascii", "ignore")
    most = shape["context"] - shape["tokens"]
    prompts = [text[1000 * i:1000 * i + 1 + i * 7 % most] for i in range(shape["requests"])]
    file = setting.folder / "requests.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt, "max_tokens": shape["tokens"], "temperature": 0,
                                        "ignore_eos": True, "logprobs": 2}) + "\n" for prompt in prompts))
    return file


class Served:
    """What `spillway-serve generate` made of the requests."""

    def __init__(self, setting, machine, *options):
        done = machine.start([BUILD / "bin/spillway-serve", "--model", setting.folder / "model", *options, "generate",
                              setting.folder / "requests.jsonl"], {})
        require(done.returncode == 0, f"spillway-serve ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        choices = [json.loads(line)["choices"][0] for line in done.stdout.splitlines()]
        self.tokens = [choice["token_ids"] for choice in choices]
        self.likeliest = [choice["logprobs"]["top_logprobs"] for choice in choices]
        self.preempted = int(re.search(r"(\d+) pre-emptions", done.stderr)[1])
        self.speed = float(re.search(r"(\d+) tokens a second", done.stderr)[1])

    def tie_at(self, sequence, place):
        first, second, *_ = [*sorted(self.likeliest[sequence][place].values(), reverse=True), float("-inf")]
        return first - second < TIE

    def beside(self, other, exact):
        """Whether the tokens are the same, up to ties unless `exact`, and that in words."""
        apart, ties = 0, 0
        for sequence, (ours, theirs) in enumerate(zip(self.tokens, other.tokens)):
            place = next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), None)
            tied = place is not None and not exact and self.tie_at(sequence, place)
            ties += tied
            apart += ours != theirs and not tied
        words = f"{apart} of {len(self.tokens)} sequences differ" if apart else "equal"
        return apart == 0, words + (f" but for {ties} that part at a tie" if ties else "")


def tight_cache(shape):
    """Blocks for two of the longest sequences."""
    return 2 * -(-shape["context"] // BLOCK)


def cache_of(machine):
    """All that the card has; a simulated one's memory is the host's."""
    return ["--cache", "16MiB"] if machine.simulated else []


def look_at_tokens(setting):
    shape = shape_for(setting.machine)
    model_of(setting), requests_of(setting)
    whole = Served(setting, setting.machine, *cache_of(setting.machine))
    tight = Served(setting, setting.machine, "--blocks", tight_cache(shape))
    processor = Served(setting, setting.machine, "--device", "cpu")
    exact = setting.machine.simulated
    (like_processor, beside_processor), (like_tight, beside_tight) = (
        whole.beside(other, exact) for other in (processor, tight))
    text = (f"{len(whole.tokens)} × {shape['tokens']} tokens: {beside_processor}; with {tight.preempted} "
            f"pre-emptions: {beside_tight}")
    speed = "" if exact else f"; {whole.speed:.0f} tokens a second, {tight.speed:.0f} pre-empted"
    met = like_processor and like_tight and tight.preempted > 0
    return judged(TOKENS, "a processor's, pre-empted too", text + speed, met,
                  {"speed": whole.speed, "pre-empted": tight.preempted})


def look_at_two(name, bar, look):
    def run(setting):
        machine = setting.with_two_cards()
        return look(setting, machine) if machine else not_run(name, bar, "this machine has one card")
    return run


MAP = f"{TWO_CARDS}, layers spread evenly"
PIPELINE_BAR = f"{BITS}, and less time with 4 micro-batches under way"


def look_at_map(setting, machine):
    rows = 1 if machine.simulated else 4
    shape = dict(shape_of(machine), batch=4 * rows, micro_batch=rows)
    plain = [*settings_of("plain", shape), "model.dropout=0.1", "run.deterministic=true"]

    def run(*settings):
        report, result = train(machine, setting.folder, [*plain, *settings])
        return result, report["plans"][-1]["time"]["achieved_seconds"]
    one, _ = run("run.devices=1")
    turn, in_turn = run("run.devices=2", "plan.devices=even")
    under_way, overlapped = run("run.devices=2", "plan.devices=even", "plan.pipeline=4")
    same = same_bits(turn, one) and same_bits(under_way, one)
    peaks = " and ".join(f"{device['peak_live'] >> 20}" for device in turn["devices"])
    text = f"{'equal' if same else 'other'} bits; {one['devices'][0]['peak_live'] >> 20} MiB alive, on two {peaks}"
    if machine.simulated:
        return judged(MAP, PIPELINE_BAR, text + "; time is judged on cards alone", same)
    text += f"; {in_turn:.2f} s a step in turn, {overlapped:.2f} s under way"
    return judged(MAP, PIPELINE_BAR, text, same and overlapped < in_turn)


SPREAD_TOKENS = f"{TWO_CARDS}, {TOKENS}"


def look_at_spread_tokens(setting, machine):
    model_of(setting), requests_of(setting)
    one = Served(setting, machine, *cache_of(machine))
    blocks = tight_cache(shape_for(machine))
    two = Served(setting, machine, "--device-map", "balanced", "--blocks", blocks)
    same, words = one.beside(two, machine.simulated)
    return judged(SPREAD_TOKENS, "one card's, pre-empted", f"with {two.preempted} pre-emptions: {words}",
                  same and two.preempted > 0)


PARTS = [part(TOKENS, 70, look_at_tokens), part(MAP, 90, look_at_two(MAP, PIPELINE_BAR, look_at_map)),
         part(SPREAD_TOKENS, 60, look_at_two(SPREAD_TOKENS, "one card's, pre-empted", look_at_spread_tokens))]
