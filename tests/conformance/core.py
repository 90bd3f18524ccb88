"""The mathematics of samba-strict/1 on integers.

Every random value is an argument; nothing here draws. Words have `bits` bits (64 in the protocol).
Words, labels, pads and bits may be arrays: test_exhaustive computes on all values at once.
A comparison cuts the low `bits` - 1 bits into digits of `digit_bits` bits (3 in the protocol).
"""

from collections.abc import Collection, Generator, Sequence
from itertools import combinations
from math import isqrt
from typing import NamedTuple

BITS, DIGIT_BITS = 64, 3
ALL_PAIRS = 16  # up to this number of places one question compares all pairs (section 5.5)

Words = Sequence[int]
Pairs = Sequence[tuple[int, int]]
Tables = Sequence[Sequence[int]]  # entries per layer of a comparison (section 5.4)


def order(words: Words) -> list[int]:
    """Return the permutation that sorts words, place to item (section 4)."""
    return sorted(range(len(words)), key=lambda item: words[item])


def permute(permutation: Words, vector: Words) -> list[int]:
    """Return π(v) with π(v)_j = v_{π_j} (section 1)."""
    return [vector[item] for item in permutation]


def add(left: Words, right: Words, bits: int = BITS) -> list[int]:
    """Return left + right on words, place by place (section 1)."""
    return [(a + b) % (1 << bits) for a, b in zip(left, right, strict=True)]


def subtract(left: Words, right: Words, bits: int = BITS) -> list[int]:
    """Return left - right on words: an owner's a = x - ρ (sections 1 and 5.2)."""
    return [(a - b) % (1 << bits) for a, b in zip(left, right, strict=True)]


def exclusive_or(left: Words, right: Words) -> list[int]:
    """Return left ⊕ right, place by place (section 1)."""
    return [a ^ b for a, b in zip(left, right, strict=True)]


class ControllerTape(NamedTuple):
    """What controller and dealer draw for a pass from T_1 (section 5.3)."""

    order: Words  # p
    before: Words  # A'
    after: Words  # B', the controller's share of the result


class CompTape(NamedTuple):
    """What comp and dealer draw for a pass from T_2 (section 5.3)."""

    order: Words  # p'
    before: Words  # A
    after: Words  # B
    place_bits: Words  # C
    owner_bits: Words  # E


def deal_pass(
    controller: ControllerTape, comp: CompTape, bits: int = BITS
) -> tuple[list[int], list[int], list[int]]:
    """Return p(A) - B, F and p'(A') - B' (section 5.3)."""
    flags = list(comp.owner_bits)
    for place, owner in enumerate(controller.order):
        flags[owner] = flags[owner] ^ comp.place_bits[place]
    to_controller = subtract(permute(controller.order, comp.before), comp.after, bits)
    to_comp = subtract(permute(comp.order, controller.before), controller.after, bits)
    return to_controller, flags, to_comp


def step_ahead(
    score_pads: Words, reply_pads: Words, tape: CompTape, bits: int = BITS
) -> tuple[list[int], list[int]]:
    """Return comp's ρ - A and η ⊕ E (section 5.3, step 1)."""
    replies = exclusive_or(reply_pads, tape.owner_bits)
    return subtract(score_pads, tape.before, bits), replies


def controller_shuffle(
    shares: Words, ahead: Words, dealt: Words, tape: ControllerTape, bits: int = BITS
) -> list[int]:
    """Return m = p(a + (ρ - A)) + (p(A) - B) - A' (section 5.3, step 2)."""
    shuffled = permute(tape.order, add(shares, ahead, bits))
    return subtract(add(shuffled, dealt, bits), tape.before, bits)


def comp_shuffle(masked: Words, dealt: Words, tape: CompTape, bits: int = BITS) -> list[int]:
    """Return z'' = p'(m + B) + (p'(A') - B') (section 5.3, step 3)."""
    return add(permute(tape.order, add(masked, tape.after, bits)), dealt, bits)


def comp_place(place: int, tape: CompTape) -> list[int]:
    """Return the bits g_j = [j = p'_w] ⊕ C_j (section 5.6, step 2)."""
    return [bit ^ (j == tape.order[place]) for j, bit in enumerate(tape.place_bits)]


def controller_undo(placed: Words, flags: Words, replies: Words, permutation: Words) -> list[int]:
    """Return (η ⊕ E) ⊕ y by owner, with y_{p_j} = F_{p_j} ⊕ g_j (section 5.6, step 3)."""
    words = exclusive_or(replies, flags)
    for place, owner in enumerate(permutation):
        words[owner] = words[owner] ^ placed[place]
    return words


def difference(share: Words, pair: tuple[int, int], bits: int = BITS) -> int:
    """Return one server's share of z_u - z_v: h or d (section 5.4)."""
    return (share[pair[0]] - share[pair[1]]) % (1 << bits)


def digits(value: int, bits: int = BITS, digit_bits: int = DIGIT_BITS) -> list[tuple[int, int]]:
    """Return the digits, lowest first, each with its number of values (section 5.4)."""
    starts = range(0, bits - 1, digit_bits)
    sizes = [1 << min(digit_bits, bits - 1 - start) for start in starts]
    return [(value >> start & size - 1, size) for start, size in zip(starts, sizes, strict=True)]


def shift(h: int, choices: int, bits: int = BITS) -> int:
    """Return n ⊕ c with n = 2^63 - 1 - h̄ (section 5.4)."""
    return ~h % (1 << (bits - 1)) ^ choices


def garble(
    d: int, shifts: int, draws: Pairs, pads: Tables, bits: int = BITS, digit_bits: int = DIGIT_BITS
) -> list[list[int]]:
    """Return comp's entries: c in layer 0, 2 c + p in later layers (section 5.4).

    `draws` has (L⁰, L¹) of every layer but the last; the pointer replaces the lowest bit of L¹.
    """
    top = d >> (bits - 1)
    labels = [(zero, one & ~1 | 1 ^ zero & 1) for zero, one in draws] + [(top, 1 ^ top)]
    tables = []
    pairs = zip(digits(d, bits, digit_bits), digits(shifts, bits, digit_bits), strict=True)
    for layer, ((own, size), (moved, _)) in enumerate(pairs):
        entries = []
        for other in (choice ^ moved for choice in range(size)):
            if layer == 0:
                entries.append(_label(labels[0], int(other < own)))
                continue
            for pointer in (0, 1):
                state = labels[layer - 1][0] & 1 ^ pointer
                after = state if other == own else int(other < own)
                key = _label(labels[layer - 1], state) >> 1
                entries.append(_label(labels[layer], after) ^ key)
        tables.append(exclusive_or(entries, pads[layer]))
    return tables


def _label(labels: tuple[int, int], state: int) -> int:
    """Return the label of a state; a product, because the state may be an array."""
    return labels[0] ^ (labels[0] ^ labels[1]) * state


def choose(tables: Tables, choices: int, bits: int = BITS, digit_bits: int = DIGIT_BITS) -> Tables:
    """Return the entries that the choices select, of pads or of an answer (section 5.4)."""
    chosen: list[Words] = []
    for layer, (choice, _) in enumerate(digits(choices, bits, digit_bits)):
        first, count = (choice, 1) if layer == 0 else (2 * choice, 2)
        chosen.append(tables[layer][first : first + count])
    return chosen


def evaluate(dealt: Tables, chosen: Tables, h: int, bits: int = BITS) -> int:
    """Return [z_u < z_v] from the chosen pads and the chosen entries (section 5.4)."""
    pointer, key = 0, 0
    for layer, (pads, entries) in enumerate(zip(dealt, chosen, strict=True)):
        label = (pads[pointer] ^ entries[pointer] ^ key) % (1 << len(dealt) - layer)
        pointer, key = label & 1, label >> 1
    return pointer ^ h >> (bits - 1)


class Question(NamedTuple):
    """Places to compare: all pairs (champion -1), or the champion with each (section 5.5)."""

    champion: int
    places: Words

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs (u, v) of the question in order."""
        if self.champion < 0:
            return list(combinations(self.places, 2))
        return [(self.champion, place) for place in self.places]


def sample_size(candidates: int, all_pairs: int = ALL_PAIRS) -> int:
    """Return g: all candidates if they are few, else ⌈1.2 √candidates⌉ (section 5.5)."""
    return candidates if candidates <= all_pairs else isqrt((36 * candidates - 1) // 25) + 1


def search(places: Words, all_pairs: int = ALL_PAIRS) -> Generator[Question, Words, int]:
    """Ask questions, take [z_u < z_v] per pair, return the place of the largest (section 5.5)."""
    candidates = list(places)
    while True:
        size = sample_size(len(candidates), all_pairs)
        sample, others = candidates[:size], candidates[size:]
        wins = dict.fromkeys(sample, 0)
        if size > 1:
            question = Question(-1, sample)
            smaller = yield question
            for (u, v), bit in zip(question.pairs(), smaller, strict=True):
                wins[v if bit else u] += 1
        if sorted(wins.values()) != list(range(size)):
            raise ValueError("the comparisons contradict each other")
        champion = max(sample, key=lambda place: wins[place])
        if not others:
            return champion
        smaller = yield Question(champion, others)
        candidates = [place for place, bit in zip(others, smaller, strict=True) if bit]
        if not candidates:
            return champion


def acceptable(
    question: Question, owners: int, sampled: Collection[int], champions: Collection[int]
) -> bool:
    """Return whether comp answers a question after what it was asked (section 5.5)."""
    champion, places = question
    different = len(set(places)) == len(places) and set(places) <= set(range(owners))
    if not different or not question.pairs() or set(places) & set(sampled):
        return False
    if champion < 0:
        return len(places) <= max(ALL_PAIRS, sample_size(owners))
    return champion in sampled and champion not in champions


def slot_answer(
    share: int, pads: tuple[int, int], noise: tuple[int, int] | None, bits: int = BITS
) -> tuple[int, int]:
    """Return (a - α, y - β); `noise` of an owner that pulls is y and a (section 7)."""
    ready = 0
    if noise:
        ready, share = noise[0] + (noise[0] == 0), noise[1]
    return (share - pads[0]) % (1 << bits), (ready - pads[1]) % (1 << bits)


def total(words: Words, bits: int = BITS) -> int:
    """Return a sum of words: Σ (y - β), and with Σ β 0 if all owners are ready (section 7)."""
    return sum(words) % (1 << bits)


def sum_share(
    value: int, key: int, offset: int, pads: tuple[int, int], prime: int
) -> tuple[int, int]:
    """Return an owner's (v - f, T - f') with T = a v + b (section 9)."""
    return (value - pads[0]) % prime, (key * value + offset - pads[1]) % prime


def add_shares(shares: Collection[tuple[int, int]], prime: int) -> tuple[int, int]:
    """Return the sum of pairs of shares or of pads (section 9)."""
    return sum(share[0] for share in shares) % prime, sum(share[1] for share in shares) % prime
