"""The views of section 11 at a small size: exact counts over all random values.

Words have 3 bits (comparisons also 4) and digits 1 bit, so a comparison has 2 or 3 layers. The
views are made by the functions of core.py. Cases with the same permitted output (section 3) must
give a view with the same counts.

Idealised: every stream is uniform words, and streams under different keys are independent;
orders are uniform permutations, because ties between order words are a term of section 11; sealed
boxes, signatures and channels are perfect, so they are in no view. A reply pad has 1 bit: its other
bits pass unchanged. A ranking stands for the comparisons that give it, because a comparison is
counted by itself for all inputs.

Counted jointly (K owners):

- controller, alone and with any set of owners but all, K = 2 and 3: all scores, p, p', ρ, η, A, B,
  C, E; two passes for K = 2;
- comp, the same: all scores, p, p', A', B' and the choices of all comparisons, with fixed ρ, A, B;
- one comparison of 3 or 4 bits: all inputs, labels, pads and choices; two of 3 bits, for one h;
- search: all rankings, p and orders of the search for K = 4 (comp) and 5 (dealer; comp for three
  orders of the search), with samples smaller than 16;
- slots, K = 2 and 3: a slot in which an owner is not ready and the next; all pads and noise;
- sum, K = 2 modulo 5 and K = 3 modulo 3: all pads, tag keys and values.

Parts of a view that share no random value are independent, so each group of parts that share some
has its own table. In a group with more than 2^20 combinations, a part with a pad of its own is
first checked to take every value once over that pad, whatever the rest is; then it is left out.

Values of one owner in a slot depend on no other owner, so owners with the controller add nothing
there; with comp they leave the sum of fewer owners.

A fault of the protocol that is planted in a view must change the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conformance import core

BITS, SIZE = 3, 8  # bits of a word, number of words
NUMBERS = range(-2, 2)  # scores: -2^(BITS - 2) ≤ x < 2^(BITS - 2)
LARGE = 1 << 20

Array = Any  # an array with an axis for each random value, or an integer
Order = tuple[int, ...]


class Part(NamedTuple):
    """A part of a view: a value below `size` for all random values."""

    values: np.ndarray
    size: int

    @property
    def axes(self) -> set[int]:
        """The random values that the part depends on; axis 0 is the last one."""
        return {axis for axis, length in enumerate(reversed(self.values.shape)) if length > 1}


View = list[Part]
Cases = Iterable[tuple[Hashable, View]]  # permitted output and view


def parts(size: int, *vectors: Iterable[Array]) -> View:
    """Return the values of some vectors as parts of a view."""
    return [Part(np.asarray(value), size) for vector in vectors for value in vector]


class Draws:
    """Uniform random values. Each has its own axis, along which it takes all its values."""

    def __init__(self) -> None:
        self.axes = 0

    def word(self, size: int = SIZE) -> Array:
        """Return a value below `size`."""
        values = np.arange(size).reshape(size, *[1] * self.axes)
        self.axes += 1
        return values

    def words(self, count: int, size: int = SIZE) -> list[Array]:
        """Return some values below `size`."""
        return [self.word(size) for _ in range(count)]

    def pair(self, size: int = SIZE) -> tuple[Array, Array]:
        """Return two values below `size`."""
        return self.word(size), self.word(size)

    def either(self, views: Sequence[View]) -> View:
        """Return the view of a party whose view is one of these, each equally likely."""
        mixed = []
        for alternatives in zip(*views, strict=True):
            arrays = np.broadcast_arrays(*(part.values for part in alternatives))
            shape = arrays[0].shape
            unused = [1] * (self.axes - len(shape))
            values = np.stack(arrays).reshape(len(arrays), *unused, *shape)
            mixed.append(Part(values, alternatives[0].size))
        self.axes += 1
        return mixed


def groups(view: View) -> list[View]:
    """Return the parts of a view in groups that share no random value."""
    separate: list[tuple[set[int], View]] = []
    for part in view:
        axes, members = part.axes, [part]
        apart = []
        for group in separate:
            if group[0] & axes:
                axes, members = group[0] | axes, group[1] + members
            else:
                apart.append(group)
        separate = [*apart, (axes, members)]
    return [members for _, members in separate]


def combinations_of(view: View) -> int:
    """Return the number of combinations of the random values that a view depends on."""
    return int(np.prod(np.broadcast_shapes(*(part.values.shape for part in view)), dtype=object))


def without_padded(view: View) -> View:
    """Leave out the parts that a pad of their own makes uniform, whatever the rest is."""
    for i, part in enumerate(view):
        others = view[:i] + view[i + 1 :]
        for axis in part.axes.difference(*(other.axes for other in others)):
            values = np.moveaxis(part.values, -1 - axis, -1)
            if np.array_equal(np.sort(values), np.broadcast_to(range(part.size), values.shape)):
                return without_padded(others)
    return view


class Table(NamedTuple):
    """The values of a group of parts that occur, and how often."""

    values: bytes
    numbers: bytes
    total: int


def table(view: View) -> Table:
    """Return the distribution of a group of parts."""
    index: Array = np.zeros((), np.int64)
    space = 1
    for values, size in view:
        index, space = index * size + values, space * size
    assert space < 1 << 62
    if space > 4 * index.size:
        values, numbers = np.unique(index, return_counts=True)
    else:
        numbers = np.bincount(index.ravel(), minlength=space)
        values = np.flatnonzero(numbers)
        numbers = numbers[values]
    return Table(values.tobytes(), numbers.tobytes(), index.size)


def counts(view: View) -> list[Table]:
    """Return the distribution of a view."""
    tables = []
    for group in groups(view):
        large = len(group) > 1 and combinations_of(group) > LARGE
        tables.append(table(without_padded(group) if large else group))
    return tables


def hidden(cases: Cases) -> bool:
    """Return whether the view has the same counts in all cases with the same output."""
    seen: dict[Hashable, list[Table]] = {}
    outputs = Counter[Hashable]()
    for output, view in cases:
        distribution = counts(view)
        outputs[output] += 1
        first = seen.setdefault(output, distribution)
        totals = [[each.total for each in tables] for tables in (first, distribution)]
        assert totals[0] == totals[1], "tables of different random values cannot be compared"
        if first != distribution:
            return False
    assert max(outputs.values()) > 1, "nothing is compared"
    return True


def orders(count: int, limited: str = "") -> list[Order]:
    """Return the values of an order that a party does not know."""
    everything = list(permutations(range(count)))
    return {"fixed": everything[:1], "one bit": everything[:2]}.get(limited, everything)


def ranking(places: Sequence[int]) -> list[int]:
    """Return the results of all comparisons."""
    return [int(u < v) for u, v in combinations(places, 2)]


def permitted(numbers: Sequence[int], corrupted: Sequence[int]) -> Hashable:
    """Return x and c of the corrupted owners (section 3)."""
    return tuple((numbers[k], numbers[k] == max(numbers)) for k in corrupted)


def coalitions(count: int) -> list[tuple[int, ...]]:
    """Return the sets of owners that leave out one owner or more."""
    return [each for size in range(count) for each in combinations(range(count), size)]


# The parts fit together


@pytest.mark.parametrize("numbers", [(-1, 0), (0, -1)])
def test_a_pass_selects_the_owner_with_the_largest_score(numbers: Order) -> None:
    bits, size = 2, 4
    for p, order in product(orders(2), repeat=2):
        draws = Draws()
        pads, before, after = draws.words(2, size), draws.words(2, size), draws.words(2, size)
        place_bits, owner_bits = draws.words(2, 2), draws.words(2, 2)
        own = core.ControllerTape(p, draws.words(2, size), draws.words(2, size))
        tape = core.CompTape(order, before, after, place_bits, owner_bits)
        dealt, flags, comp_dealt = core.deal_pass(own, tape, bits)
        ahead, replies = core.step_ahead(pads, pads, tape, bits)
        shares = core.subtract(numbers, pads, bits)
        masked = core.controller_shuffle(shares, ahead, dealt, own, bits)
        share = core.comp_shuffle(masked, comp_dealt, tape, bits)
        places = core.permute(order, core.permute(p, numbers))
        for place, opened in zip(places, core.add(own.after, share, bits), strict=True):
            assert np.all(opened == place % size)
        placed = core.comp_place(places.index(max(places)), tape)
        words = core.controller_undo(placed, flags, replies, p)
        for number, word, pad in zip(numbers, words, pads, strict=True):
            assert np.all(word ^ pad == (number == max(numbers)))


def test_a_comparison_opens_to_its_result() -> None:
    half, pads = SIZE // 2, [[1, 2], [1, 0, 0, 1]]
    for h, d, choices in product(range(SIZE), range(SIZE), range(half)):
        dealt = core.choose(pads, choices, BITS, 1)
        for zero, one in product(range(half), repeat=2):
            answer = core.garble(d, core.shift(h, choices, BITS), [(zero, one)], pads, BITS, 1)
            chosen = core.choose(answer, choices, BITS, 1)
            assert core.evaluate(dealt, chosen, h, BITS) == ((h + d) % SIZE >= half)


# 11.1: the controller


def controller_view(
    draws: Draws,
    numbers: Sequence[int],
    p: Order,
    corrupted: Sequence[int] = (),
    fault: str = "",
    score_pads: Sequence[Array] | None = None,
) -> View:
    """Return a pass at the controller, with the pads of the corrupted owners."""
    count = len(numbers)
    pads = list(score_pads or draws.words(count))
    replies = draws.words(count, 2)
    before, after = draws.words(count), draws.words(count)
    place_bits, owner_bits = draws.words(count, 2), draws.words(count, 2)
    zeros = {"ρ": pads, "A": before, "B": after, "C": place_bits, "E": owner_bits, "η": replies}
    if fault in zeros:
        zeros[fault][0] = 0
    if fault == "η = ρ":
        replies = [pad % 2 for pad in pads]
    shares = core.subtract(numbers, pads, BITS)
    mixed = []
    for order in orders(count, fault):
        tape = core.CompTape(order, before, after, place_bits, owner_bits)
        places = core.permute(order, core.permute(p, numbers))
        placed = core.comp_place(places.index(max(places)), tape)
        mixed.append(parts(2, placed, ranking(places)))
    # What follows does not depend on p'.
    dealt, flags, _ = core.deal_pass(core.ControllerTape(p, [0] * count, [0] * count), tape, BITS)
    ahead, masked_replies = core.step_ahead(pads, replies, tape, BITS)
    view = parts(SIZE, shares, ahead, dealt) + parts(2, flags, masked_replies)
    known = [pads[k] for k in corrupted], [replies[k] for k in corrupted]
    return view + parts(SIZE, *known) + draws.either(mixed)


def controller(count: int, corrupted: Sequence[int] = (), fault: str = "") -> Cases:
    """Return the views of the controller for all scores and its orders."""
    for numbers, p in product(permutations(NUMBERS, count), orders(count)):
        view = controller_view(Draws(), numbers, p, corrupted, fault)
        yield (p, permitted(numbers, corrupted)), view


def two_passes(repeated: bool = False) -> Cases:
    """Return the views of two passes at the controller."""
    for first, second in product(permutations(NUMBERS, 2), repeat=2):
        draws = Draws()
        pads = draws.words(2)
        view = controller_view(draws, first, (0, 1), score_pads=pads)
        pads = pads if repeated else draws.words(2)
        yield "nothing", view + controller_view(draws, second, (0, 1), score_pads=pads)


@pytest.mark.parametrize("count", [2, 3])
def test_the_controller_learns_nothing_from_a_pass(count: int) -> None:
    for corrupted in coalitions(count):
        assert hidden(controller(count, corrupted)), corrupted


def test_the_controller_learns_nothing_from_two_passes() -> None:
    assert hidden(two_passes())


# 11.2: comp


def comp_view(numbers: Sequence[int], order: Order, fault: str = "") -> View:
    """Return a pass at comp, which knows ρ, A, B and p' (`order`)."""
    count, draws = len(numbers), Draws()
    pads, before, after = (5, 2, 7)[:count], (3, 6, 1)[:count], (1, 4, 6)[:count]
    tape = core.CompTape(order, before, after, [0] * count, [0] * count)
    own_before, own_after = draws.words(count), draws.words(count)
    pairs = list(combinations(range(count), 2))
    choices = draws.words(len(pairs), SIZE // 2)
    zeros = {"A'": own_before, "B'": own_after}
    if fault in zeros:
        zeros[fault][0] = 0
    if fault == "choices repeated":
        choices[1] = choices[0]
    ahead, _ = core.step_ahead(pads, [0] * count, tape, BITS)
    shares = core.subtract(numbers, pads, BITS)
    mixed = []
    for p in orders(count, fault):
        own = core.ControllerTape(p, own_before, own_after)
        dealt, _, comp_dealt = core.deal_pass(own, tape, BITS)
        masked = core.controller_shuffle(shares, ahead, dealt, own, BITS)
        places = core.permute(order, core.permute(p, numbers))
        mixed.append(parts(SIZE, masked) + parts(2, ranking(places)))
    # What follows does not depend on p.
    differences = [core.difference(own_after, pair, BITS) for pair in pairs]
    shifts = [core.shift(h, c, BITS) for h, c in zip(differences, choices, strict=True)]
    return parts(SIZE, comp_dealt) + parts(SIZE // 2, shifts) + draws.either(mixed)


def comp(count: int, corrupted: Sequence[int] = (), fault: str = "") -> Cases:
    """Return the views of comp for all scores and its orders."""
    for numbers, order in product(permutations(NUMBERS, count), orders(count)):
        yield (order, permitted(numbers, corrupted)), comp_view(numbers, order, fault)


@pytest.mark.parametrize("count", [2, 3])
def test_comp_learns_nothing_from_a_pass(count: int) -> None:
    for corrupted in coalitions(count):
        assert hidden(comp(count, corrupted)), corrupted


def transcript(places: Sequence[int], first: Order, all_pairs: int) -> tuple[Hashable, int]:
    """Return the questions with the place of the largest, and the number of comparisons."""
    search, questions = core.search(first, all_pairs), []
    try:
        question = next(search)
        while True:
            questions.append((question.champion, tuple(question.places)))
            bits = [places[u] < places[v] for u, v in question.pairs()]
            question = search.send(bits)
    except StopIteration as end:
        pairs = (core.Question(*each).pairs() for each in questions)
        return (tuple(questions), end.value), sum(map(len, pairs))


def questions(
    count: int, all_pairs: int, firsts: Sequence[Order], fault: str = ""
) -> Iterator[Counter[Hashable]]:
    """Return what comp sees of the searches, for all rankings of the owners."""
    for numbers in permutations(range(count)):
        pairs = product(orders(count, fault), firsts)
        yield Counter(transcript(core.permute(p, numbers), each, all_pairs)[0] for p, each in pairs)


def comparisons(count: int, all_pairs: int, fault: str = "") -> Iterator[Counter[Hashable]]:
    """Return the numbers of comparisons that the dealer sees; it knows p and p'."""
    for places in permutations(range(count)):
        firsts = orders(count, fault)
        yield Counter[Hashable](transcript(places, first, all_pairs)[1] for first in firsts)


def equal(distributions: Iterable[object]) -> bool:
    """Return whether all of the distributions are equal."""
    first, *others = distributions
    return all(other == first for other in others)


def test_comp_learns_nothing_from_the_questions_of_a_search() -> None:
    assert equal(questions(4, 1, orders(4)))
    for first in orders(5)[::40]:
        assert equal(questions(5, 2, [first]))


# 11.3: the dealer


@pytest.mark.parametrize(("count", "all_pairs"), [(5, 1), (5, 2)])
def test_the_dealer_learns_nothing_from_the_number_of_comparisons(
    count: int, all_pairs: int
) -> None:
    numbers = list(comparisons(count, all_pairs))
    assert equal(numbers)
    assert len(numbers[0]) > 1, "the number of comparisons is constant"


# 11.1: comparisons

Labels = list[tuple[Array, Array]]


def label_draws(draws: Draws, bits: int) -> Labels:
    """Return the labels of a comparison; the lowest bit of the second one is not used."""
    sizes = [1 << layer for layer in range(bits - 1, 1, -1)]
    return [(draws.word(size), 2 * draws.word(size // 2)) for size in sizes]


def pad_draws(draws: Draws, bits: int) -> list[list[Array]]:
    """Return the pads of a comparison."""
    layers = range(bits - 1)
    return [draws.words(4 if layer else 2, 1 << (bits - 1 - layer)) for layer in layers]


def comparison_view(
    d: int, h: int, choices: int, bits: int, labels: Labels, pads: list[list[Array]]
) -> View:
    """Return the dealt pads and all entries of comp's answer."""
    answer = core.garble(d, core.shift(h, choices, bits), labels, pads, bits, 1)
    view = []
    for layer, dealt in enumerate(core.choose(pads, choices, bits, 1)):
        view += parts(1 << (bits - 1 - layer), dealt, answer[layer])
    return view


def comparison(bits: int, fault: str = "") -> Cases:
    """Return the views of a comparison for all inputs; the top bit of h changes the result only."""
    half = 1 << (bits - 1)
    for h, choices, d in product(range(half), range(half), range(2 * half)):
        draws = Draws()
        labels, pads = label_draws(draws, bits), pad_draws(draws, bits)
        if fault == "label":
            labels[0] = (0 * labels[0][0], labels[0][1])
        view = comparison_view(d, h, choices, bits, labels, pads)
        yield (h, choices, (h + d) % (2 * half) >= half), view


def two_comparisons(fault: str = "") -> Cases:
    """Return the views of two comparisons, for all choices."""
    h, half = 1, SIZE // 2
    for choices, others, d, e in product(range(half), range(half), range(SIZE), range(SIZE)):
        draws = Draws()
        labels, pads = label_draws(draws, BITS), pad_draws(draws, BITS)
        view = comparison_view(d, h, choices, BITS, labels, pads)
        labels = labels if fault == "labels repeated" else label_draws(draws, BITS)
        pads = pads if fault == "pads repeated" else pad_draws(draws, BITS)
        results = [(h + each) % SIZE >= half for each in (d, e)]
        second = comparison_view(e, h, others, BITS, labels, pads)
        yield (choices, others, *results), view + second


@pytest.mark.parametrize("bits", [3, 4])
def test_the_controller_learns_only_the_result_of_a_comparison(bits: int) -> None:
    assert hidden(comparison(bits))


def test_the_controller_learns_only_the_results_of_two_comparisons() -> None:
    assert hidden(two_comparisons())


# 11.1 and 11.2: slots


def slots(count: int, fault: str = "") -> Cases:
    """Return the views of the controller in a slot, and in the next if not all are ready."""
    for numbers, ready in product(permutations(NUMBERS, count), product((0, 1), repeat=count)):
        draws, view = Draws(), []
        for number, is_ready in zip(numbers, ready, strict=True):
            share = core.subtract([number], [draws.word()], BITS)[0]
            alpha, beta = draws.pair()
            pads = 0 if fault == "α" else alpha, 0 if fault == "β" else beta
            noise = draws.pair()
            answers = [core.slot_answer(share, pads, each, BITS) for each in (noise, None)]
            # np.where: the answer has the axes of both, so all cases have the same groups.
            view += parts(SIZE, [np.where(is_ready, b, a) for a, b in zip(*answers, strict=True)])
            if not all(ready):
                pads = pads if fault == "pads repeated" else draws.pair()
                view += parts(SIZE, core.slot_answer(share, pads, None, BITS))
            view += parts(SIZE, pads[:1])
        yield all(ready), view


def sums_of_ready_words(ready: Sequence[int], fault: str = "") -> list[int]:
    """Return how often comp obtains each sum of ready words; it knows α and β."""
    draws, words, betas = Draws(), [], (6, 3, 5)
    for beta, is_ready in zip(betas, ready, strict=False):
        noise = (1 if fault else draws.word(), 0)
        words.append(core.slot_answer(0, (0, beta), None if is_ready else noise, BITS)[1])
    total = core.total([core.total(words, BITS), *betas[: len(ready)]], BITS)
    numbers = np.bincount(np.ravel(total), minlength=SIZE)
    return [int(number) * SIZE ** len(ready) // int(numbers.sum()) for number in numbers]


def ready_words_hide(count: int, fault: str = "") -> bool:
    """Return whether the sum is uniform and not 0, up to 1/8 per owner that is not ready."""
    whole = SIZE**count
    for ready in product((0, 1), repeat=count):
        numbers, missing = sums_of_ready_words(ready, fault), ready.count(0)
        if not missing:
            assert numbers[0] == whole
            continue
        # The distance is half of Σ |number / whole - 1/7| over the words that are not 0.
        gaps = [7 * numbers[0], *(abs(7 * number - whole) for number in numbers[1:])]
        if sum(gaps) * SIZE > 2 * 7 * whole * missing:
            return False
    return True


@pytest.mark.parametrize("count", [2, 3])
def test_the_controller_learns_from_slots_only_whether_all_are_ready(count: int) -> None:
    assert hidden(slots(count))


@pytest.mark.parametrize("count", [2, 3])
def test_comp_learns_from_slots_only_whether_all_are_ready(count: int) -> None:
    one_missing = [[int(k != missing) for k in range(count)] for missing in range(count)]
    assert equal(sums_of_ready_words(ready) for ready in one_missing)
    assert ready_words_hide(count)


# 11.1 to 11.4: the sum


def sums(count: int, prime: int, parties: Sequence[object], fault: str = "") -> Cases:
    """Return what parties see of the sum. A number stands for an owner."""
    corrupted = [each for each in parties if isinstance(each, int)]
    for values in product(range(prime), repeat=count):
        draws = Draws()
        key, offsets = draws.word(prime), draws.words(count, prime)
        pads = [draws.pair(prime) for _ in values]
        if fault == "f":
            pads[0] = (0, pads[0][1])
        if fault == "f'":
            pads[0] = (pads[0][0], 0)
        numbers = zip(values, offsets, pads, strict=True)
        shares = [core.sum_share(v, key, b, pad, prime) for v, b, pad in numbers]
        view = parts(prime, *(pads[k] for k in corrupted))
        if parties != ["controller"]:
            view += parts(prime, [key], offsets)
        if "controller" in parties:
            view += parts(prime, *shares)
        if "comp" in parties:
            view += parts(prime, *pads)
        output: list[int] = [values[k] for k in corrupted]
        if "customer" in parties:
            output.append(sum(values) % prime)
            view += parts(prime, core.add_shares(shares, prime), core.add_shares(pads, prime))
        yield tuple(output), view


@pytest.mark.parametrize(("count", "prime", "owners"), [(2, 5, ()), (3, 3, ()), (3, 3, (0,))])
@pytest.mark.parametrize(
    "parties",
    [["controller"], ["comp"], ["customer"], ["controller", "customer"], ["comp", "customer"]],
    ids="-".join,
)
def test_parties_learn_nothing_else_from_the_sum(
    count: int, prime: int, owners: tuple[int, ...], parties: list[str]
) -> None:
    assert hidden(sums(count, prime, [*parties, *owners]))


# Faults of the protocol

FAULTS: dict[str, Callable[[], bool]] = {
    "p' is public": lambda: hidden(controller(2, fault="fixed")),
    "p' has 1 bit": lambda: hidden(controller(3, fault="one bit")),
    "first score pad of an owner is 0": lambda: hidden(controller(2, fault="ρ")),
    "A is 0 at a place": lambda: hidden(controller(2, fault="A")),
    "B is 0 at a place": lambda: hidden(controller(2, fault="B")),
    "C is 0 at a place": lambda: hidden(controller(2, fault="C")),
    "E is 0 at an owner": lambda: hidden(controller(2, fault="E")),
    "the reply pad of an owner is 0": lambda: hidden(controller(2, fault="η")),
    "reply pad = score pad": lambda: hidden(controller(2, fault="η = ρ")),
    "pads of two passes are equal": lambda: hidden(two_passes(repeated=True)),
    "p is public": lambda: hidden(comp(2, fault="fixed")),
    "p has 1 bit": lambda: hidden(comp(3, fault="one bit")),
    "p is public in a search": lambda: equal(questions(4, 1, orders(4), "fixed")),
    "A' is 0 at a place": lambda: hidden(comp(2, fault="A'")),
    "B' is 0 at a place": lambda: hidden(comp(2, fault="B'")),
    "choices of two comparisons are equal": lambda: hidden(comp(3, fault="choices repeated")),
    "order of the search is public": lambda: equal(comparisons(5, 2, "fixed")),
    "a label is 0": lambda: hidden(comparison(3, "label")),
    "pads of two comparisons are equal": lambda: hidden(two_comparisons("pads repeated")),
    "labels of two passes are equal": lambda: hidden(two_comparisons("labels repeated")),
    "score pad of a slot is 0": lambda: hidden(slots(2, "α")),
    "ready pad of a slot is 0": lambda: hidden(slots(2, "β")),
    "pads of two slots are equal": lambda: hidden(slots(2, "pads repeated")),
    "ready word is always 1": lambda: ready_words_hide(2, "1"),
    "pad of the sum is 0": lambda: hidden(sums(2, 5, ["controller"], "f")),
    # With the controller alone the unknown a and b still hide T; an owner knows both.
    "pad of the tag is 0": lambda: hidden(sums(3, 3, ["controller", 1], "f'")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_changes_a_view(fault: str) -> None:
    assert not FAULTS[fault]()
