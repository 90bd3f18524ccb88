"""A contextual bandit between organisations: what a role's file says, and the role it makes of it."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Literal

from posse.core import check, files
from posse.core.errors import ConfigError, DataError, DisagreementError, MissingExtraError
from posse.core.roles import Note, Role
from posse.core.settings import Settings
from posse.privacy.dp.arms import ArmChoice, Arms
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import FixedPoint, Words
from posse.problems.contexts.contexts import Contexts, check_bounds
from posse.problems.contexts.features import FeatureBlock, read_block
from posse.problems.contexts.settings import ContextSettings
from posse.protocols.mpc_contextual import messages
from posse.protocols.mpc_contextual.dealer import DealerRole
from posse.protocols.mpc_contextual.dealing import plan
from posse.protocols.mpc_contextual.needs import needs
from posse.protocols.mpc_contextual.outside import ActSettings, WorldArms, earning, pulling, simulated
from posse.protocols.mpc_contextual.party import CHECKPOINT, STEP_OVER, Party
from posse.protocols.mpc_contextual.payee import Payee
from posse.protocols.mpc_contextual.program import Layout
from posse.protocols.mpc_contextual.puller import Puller
from posse.protocols.mpc_contextual.ranges import check_ranges
from posse.protocols.mpc_contextual.settings import BONUS, check_guarantee
from posse.protocols.mpc_contextual.shares import write_share
from posse.protocols.mpc_contextual.terms import DEALER, PAYEE, PULLER, WIDTH_BITS, Terms, check_parties, exploration
from posse.runtime.network.deployment import Deployment, Place
from posse.runtime.network.engine import Vocabulary
from posse.runtime.network.party import Source
from posse.runtime.network.wire import LARGEST_FRAME
from posse.runtime.sources import SourceSettings

VOCABULARY = Vocabulary(
    (
        messages.Hello, messages.Seed, messages.Want, messages.Dealt, messages.Opening, messages.Reveal,
        messages.Choice, messages.Pulled, messages.Payoff, messages.Acted, messages.Earned,
    ),
    (messages.Act, messages.Earn),
)  # fmt: skip
OUTSIDE = (PULLER, PAYEE, DEALER)
WORLD_ARMS = "world.arms"
"""Beside the files of a simulated federation: the arm of every step."""
ARMS = "arms.csv"
"""Beside the puller's journal, for its own eyes: the arm of every step, written at the end."""
_HEAD = 1024
"""Bytes of a message beside its data, at most."""


class World(ContextSettings):
    """A simulated world: contexts, their order and what arms pay follow from the seed."""

    seed: int = 1


class ContextualOptions(Settings):
    """The table [options] of every role: the terms, the same for everyone, and where a party's own features are.

    `features` is a CSV file that stays with this party: a column row, and a column for each of its features; the row of
    step t is the t-th. Without it the contexts are those of a simulated [options.world]: for trying and testing.
    """

    parties: tuple[str, ...] = ()
    """Names of the parties, in the order of their features in a context."""
    columns: tuple[int, ...] = ()
    """Number of features that each party holds."""
    bounds: tuple[float, ...] = ()
    """Largest norm of each party's part of a row; squares add up to at most 1; by its share of the features if left
    out."""
    arms: int = 0
    """Number of arms."""
    steps: int = 0
    """Number of steps."""
    epsilon: float | str = 0.1
    """Exploration rate, which is the protection of the arm: a number such as 0.1, or a fraction such as "1/3"."""
    without_guarantee: bool = False
    """Say aloud that epsilon = 0 is wanted: the arm then shows what the scores were, without any privacy guarantee."""
    delta: float = 1e-5
    """Delta of the figure for all steps together."""
    limit: float | None = None
    """Largest epsilon (with delta) that one context may cost over the whole run; longer runs are refused."""
    bits: int = 26
    """Fraction bits of everything shared."""
    newton: int = 2
    """Newton steps of the reciprocal."""
    batch: int = 1
    """Contexts that are chosen for, and then learnt from, together."""
    policy: Literal["epsilon-greedy", "linucb", "thompson"] = "epsilon-greedy"
    """How an arm is chosen where it is not drawn by epsilon."""
    width: float = 1.0
    """Width of the bonus of linucb, or of what thompson draws, in standard deviations of a score."""
    rows: str = ""
    """Digest of the row identifiers of the parties' files, which must be the same in all of them."""
    features: Path | None = None
    """CSV file of this party's own features."""
    scale: bool = False
    """Scale longer rows of this party's features down to its bound, instead of refusing them."""
    checkpoint_every: int = 1000
    """Steps after which a party writes its share of the model beside its journal; 0 for the last step only."""
    world: World | None = None
    """A simulated world ([options.world]): for trying and testing, for everyone in it knows every context."""

    def terms(self, run: str) -> Terms:
        """Make the terms, or say in one line what is wrong with them."""
        check.at_least(0, checkpoint_every=self.checkpoint_every)
        explore = exploration(self.epsilon)
        check_guarantee(explore, self.without_guarantee)
        given = self.of_world() if self.world is not None and not self.parties else self
        check_parties(given.parties)
        if given.arms < 2 or given.steps < 1:
            raise ConfigError(
                f"a run needs at least 2 arms and 1 step, got {given.arms} and {given.steps}. Give arms and steps."
            )
        terms = Terms(
            run, given.parties, given.columns, given.arms, given.steps, explore, given.bits, given.newton, given.batch,
            BONUS[given.policy], round(given.width * 2**WIDTH_BITS),
            f"{given.rows} {given.norms()}" if given.rows else "",
        )  # fmt: skip
        check_ranges(terms)
        return terms

    def norms(self) -> tuple[float, ...]:
        """Return the norm bound of every party; they are part of the terms where parties bring files."""
        total = sum(self.columns)
        found = self.bounds or tuple(math.sqrt(size / total) for size in self.columns)
        if len(found) != len(self.parties):
            raise ConfigError(f"bounds must be one number a party, got {len(found)} for {len(self.parties)} parties.")
        for bound in found:
            check.between(0, 1, open_low=True, bound=bound)
        check_bounds(dict(zip(self.parties, found, strict=True)))
        return found

    def of_world(self) -> ContextualOptions:
        """Take parties, features and arms from the simulated world."""
        assert self.world is not None
        contexts = self.world.contexts()
        sizes = tuple(len(block.columns) for block in contexts.blocks)
        return self.model_copy(update={"parties": contexts.parties, "columns": sizes, "arms": len(contexts.arms)})


# One role -----------------------------------------------------------------------------------------------------------


def build(place: Place) -> Deployment:
    """Make the role that a certificate names."""
    options = ContextualOptions.make(place.file.options)
    name, kind = place.identity.name, place.identity.role
    check.one_of(("party", *OUTSIDE), role=kind)
    if kind in OUTSIDE and name != kind:
        raise ConfigError(f"the {kind} of a run must be called '{kind}', the certificate says '{name}'.")
    terms = options.terms(place.identity.run)
    if kind == "party" and name not in terms.parties:
        raise ConfigError(
            f"'{name}' is not among the parties: {', '.join(terms.parties)}. Correct parties, or enrol under its name."
        )
    # Everyone refuses a run beyond the limit; only the puller tells the figures, and loads an accountant for them.
    told = arm_figures(options, terms) if kind == PULLER or options.limit is not None else ()
    planned = checked_plan(terms)
    role, source = _role(place, options, terms, planned)
    everyone = {**dict.fromkeys(terms.parties, "party"), **{each: each for each in OUTSIDE}}
    peers = {each: part for each, part in everyone.items() if each != name}
    return Deployment(
        role, VOCABULARY, peers, source, watch=partial(_note, place, terms, role),
        needs=lambda: needs(role, planned), remarks=told if kind == PULLER else (),
    )  # fmt: skip


def _role(place: Place, options: ContextualOptions, terms: Terms, planned: Plan) -> tuple[Role, Source | None]:
    kind = place.identity.role
    if kind == PULLER:
        return Puller(terms), _pulls(place, options)
    if kind == PAYEE:
        return Payee(terms), _pays(place, options, terms)
    if kind == DEALER:
        return DealerRole(terms, planned, place.secrets), None
    features = features_of(options, terms, place.identity.name, place.folder)
    role = Party(
        place.identity.name, terms, planned, features, place.secrets, checkpoint_every=options.checkpoint_every
    )
    return role, None


def features_of(options: ContextualOptions, terms: Terms, name: str, folder: Path) -> Words:
    """Return a party's features in fixed point, a row a step."""
    if options.world is not None:
        contexts = _fitting(options.world.contexts(), terms)
        bound = contexts.blocks[contexts.parties.index(name)].bound
        rows = contexts.order(options.world.seed, terms.steps)
        return FixedPoint(terms.bits, bound).encode(contexts.held(name)[rows])
    if options.features is None:
        raise ConfigError(
            "a party needs features. Give features with a CSV file of its own, or try with [options.world]."
        )
    number = terms.parties.index(name)
    bound = options.norms()[number]
    block = read_block(folder / options.features, bound, scale=options.scale)
    check_block(block, options.rows, terms.features[number], terms.steps)
    return FixedPoint(terms.bits, bound).encode(block.values[: terms.steps])


def check_block(block: FeatureBlock, rows: str, size: int, steps: int) -> None:
    """Refuse a file whose rows, features or length are not those of the terms."""
    if not rows:
        raise ConfigError(
            f'all must agree on the rows of the parties\' files. For {block.file} give rows = "{block.ids_digest}" to '
            "everyone, and compare it with the other parties."
        )
    if block.ids_digest != rows:
        raise DisagreementError(
            f"the rows of {block.file} have the digest {block.ids_digest[:12]}, the terms say {rows[:12]}. Put the "
            "same rows in the same order in the files of all parties."
        )
    if len(block.names) != size:
        raise DataError(f"{block.file} has {len(block.names)} features, the terms say {size}. Correct one of them.")
    if len(block.ids) < steps:
        raise DataError(f"{block.file} has {len(block.ids)} rows for {steps} steps. Add rows, or take fewer steps.")


def _fitting(contexts: Contexts, terms: Terms) -> Contexts:
    sizes = tuple(len(block.columns) for block in contexts.blocks)
    if (contexts.parties, sizes, len(contexts.arms)) != (terms.parties, terms.features, terms.arms):
        raise ConfigError(
            f"the simulated world has {len(contexts.arms)} arms and parties {', '.join(contexts.parties)} with "
            f"{', '.join(map(str, sizes))} features; parties, columns and arms say otherwise. Leave them out."
        )
    return contexts


def checked_plan(terms: Terms) -> Plan:
    """Make the plan; refuse terms whose messages no party would take, as far as can be told before making it."""
    _check_size(8 * terms.arms * Layout(terms.dimension).size)
    planned = plan(terms)
    rounds = [each.shares + sum(each.inputs.values()) for each in planned.rounds]
    _check_size(max(*rounds, planned.passes * planned.sizes.dealt_bytes) + _HEAD)
    return planned


def _check_size(largest: int) -> None:
    if largest > LARGEST_FRAME:
        raise ConfigError(
            f"so many arms and features need messages of {largest / 2**20:.0f} MiB, the largest allowed is "
            f"{LARGEST_FRAME >> 20}. Take fewer arms or features."
        )


def arm_figures(options: ContextualOptions, terms: Terms) -> tuple[str, ...]:
    """Say what the arms show, of one step and of all: never one without the other; refuses a run beyond the limit."""
    budget = None if options.limit is None else Budget(options.limit, options.delta)
    if not terms.rate and budget is None:
        return ("epsilon is 0: the arms carry no privacy guarantee at all.",)
    try:
        ledger = Ledger(Arms(ArmChoice(terms.arms, terms.rate), budget, delta=options.delta))
        ledger.spend(times=terms.steps)
        once, total = ledger.guarantees()
    except MissingExtraError as error:
        if budget is not None:
            raise
        return (f"what the arms show of the contexts is not told: {str(error).removeprefix(f'[{error.code}] ')}",)
    return (
        f"what the arms show: {once.figure} of the scores of one step, {total.figure} of one context over all "
        f"{terms.steps:,} steps; rewards and weights carry no noise.",
    )


def _pulls(place: Place, options: ContextualOptions) -> Source:
    """Where this puller's arms go: a simulated world, or what [source] says."""
    if place.file.source is not None:
        return pulling(ActSettings.make(place.file.source).pull(place.identity.run, place.folder))
    if options.world is None:
        raise ConfigError("the puller needs to know where its arms go. Give [source] with a kind.")
    return pulling(WorldArms(place.folder / WORLD_ARMS).pull)


def _pays(place: Place, options: ContextualOptions, terms: Terms) -> Source:
    """Where this payee's rewards come from: a simulated world, or what [source] says."""
    if place.file.source is not None:
        draws = place.secrets.number(b"mpc source", context=place.identity.run.encode())
        return earning(SourceSettings.make(place.file.source).source(draws, place.folder), place.identity.run)
    if options.world is None:
        raise ConfigError("the payee needs to know where its rewards come from. Give [source] with a kind.")
    contexts, seed = _fitting(options.world.contexts(), terms), options.world.seed
    return simulated(contexts, seed, terms.steps, WorldArms(place.folder / WORLD_ARMS))


def _note(place: Place, terms: Terms, role: Role, note: Note) -> None:
    """Write a share when it is time, and at the end; the puller writes its arms at the end."""
    if note.kind == CHECKPOINT:
        assert isinstance(note.value, bytes)
        write_share(place.journal, terms, role.name, note.step, note.value)
    elif note.kind == STEP_OVER and role.finished:
        if isinstance(role, Party):
            write_share(place.journal, terms, role.name, note.step, role.model.tobytes())
        elif isinstance(role, Puller):
            lines = [f"{step},{arm}\n" for step, arm in enumerate(role.arms.tolist())]
            files.write_whole(place.journal / ARMS, "".join(["step,arm\n", *lines]).encode(), mode=files.PRIVATE)
