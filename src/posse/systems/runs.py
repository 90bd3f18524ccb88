"""Runs: a run is one execution of a system.

`System.start` returns a `Run`. The caller advances the run by one message, by some decisions, or to
the end. A run whose roles exchange messages is a `RolesRun`: it delivers the messages in this
process, one seed after the other.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, Literal, TypeAlias

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.interrupts import half_second_steps
from posse.core.roles import WORLD, Ask, Message, Note, Role, View
from posse.results.record import Progress, Record, Watch
from posse.runtime.memory import Delivery, MemoryRun, Transcript, World, fork
from posse.systems.base import AnySystem, RunSettings, not_protected

Hop: TypeAlias = tuple[str, str]
"""Kind of a message's sender, and kind of its receiver."""


class Run(ABC):
    """One execution of a system, with one or several seeds of the same settings.

    `time` is the number of decisions (or rounds) so far, and `horizon` is the number at the end.
    Both are sums over all seeds. A *current* seed is one that is computed at the moment. A run has
    one current seed if the system computes seeds one after the other, and several if the system
    computes seeds together.

    Between two calls a run can be read (`state`, `view`), recorded and saved. Two threads must not
    use a run at the same time.
    """

    unit: ClassVar[str] = "step"
    """The system's word for what `time` counts."""
    records_while_running: ClassVar[bool] = False
    """Whether another thread may call `record` during a step.

    With such a call, `save_on_interrupt` saves the run after Ctrl-C even if its step does not end.
    The call is safe if a step changes none of the objects that `record` reads, and replaces them at
    its end.
    """

    def __init__(
        self, system: AnySystem, settings: RunSettings, seeds: Sequence[int] | None
    ) -> None:
        self.system = system
        self.settings = settings
        self.seeds = settings.seeds if seeds is None else tuple(seeds)
        self.seconds = 0.0
        """CPU seconds of all steps, without compiling and loading."""

    # Moving forward -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def time(self) -> int:
        """Number of decisions (or rounds) so far, all seeds together."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Number of decisions (or rounds) of one seed, times the number of seeds."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the run is over."""

    @abstractmethod
    def _advance(self, n: int) -> None:
        """Make n decisions in each current seed. `advance` calls this, and counts the seconds."""

    def advance(self, n: int = 1) -> None:
        """Make n decisions in each current seed, or fewer if the seed ends earlier."""
        check.at_least(1, n=n)
        with self._count_seconds():
            self._advance(n)

    def step(self) -> None:
        """Make one decision in each current seed."""
        self.advance(1)

    def finish(self, watch: Watch | None = None) -> None:
        """Run to the end, and call `watch` with the progress about every half second."""
        # `half_second_steps` measures how long the steps take, and adapts their number.
        for steps in half_second_steps(self.most_steps_at_once):
            if self.done:
                return
            self.advance(steps)
            if watch is not None:
                watch(self.progress)

    @property
    def most_steps_at_once(self) -> int:
        """Largest number of decisions that `finish` makes between two reports of progress.

        By default a 200th of a seed. Systems return more if their decisions take little time.
        """
        seed_horizon = self.horizon // max(1, len(self.seeds))
        return max(1, seed_horizon // 200)

    @property
    def progress(self) -> Progress:
        """How much of the run is done, and which seed is current.

        Of several current seeds, the first one is given.
        """
        horizon = max(1, self.horizon)  # not 0, because it is a divisor below
        n_seeds = len(self.seeds)
        # Count as if the seeds ran one after the other. At the end, the last seed remains current.
        seed_number = min(self.time * n_seeds // horizon, n_seeds - 1)
        # Seeds that are computed together are all current: return the first of them.
        first_current = seed_number - seed_number % self.seeds_at_once
        return Progress(first_current, n_seeds, self.time / horizon, self.seeds_at_once)

    @property
    def seeds_at_once(self) -> int:
        """Number of seeds that are computed together."""
        return 1

    def deliver(self, *, explain: bool = True, until: int | None = None) -> Delivery | None:
        """Deliver one message, and return it.

        Args:
            explain: Whether the result has an explanation of the message.
            until: Stop without a message when the run reaches this number of decisions, counted
                over all seeds. Has no effect if the run had reached the number before the call.

        Returns:
            The message; None if the run is over or stopped at `until`.

        Raises:
            ConfigError: Runs of this system have no messages between roles.
        """
        if self.done:
            return None
        raise ConfigError(
            f"this run of {self.system.name} has no messages between roles. Use step().",
            rule="systems.deliver.no-messages",
        )

    @contextmanager
    def _count_seconds(self) -> Iterator[None]:
        """Add the CPU seconds of the block to `seconds`."""
        started = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - started

    # The outside world ----------------------------------------------------------------------------

    @property
    def asks(self) -> Mapping[int, Ask]:
        """Requests that the caller must `answer`, by number; empty if the world is simulated."""
        return {}

    def answer(self, number: int, reward: Any) -> None:
        """Answer the request of this number (`asks`) with a reward from the outside world.

        Raises:
            ConfigError: No such request is open, or the run simulates its world.
        """
        raise ConfigError(
            f"this run of {self.system.name} simulates its world. Start it with world='outside'.",
            rule="systems.world.simulated",
        )

    # Reading --------------------------------------------------------------------------------------

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties; empty in a plain run, where one process sees everything."""
        return tuple(self.kinds)

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each party's role, by the name of the party."""
        return {}

    def state(self, party: str) -> dict[str, Any]:
        """Return what the operator of a party may see (`Role.state`)."""
        raise ConfigError(
            f"this run of {self.system.name} has no parties: one process sees everything.",
            rule="systems.state.no-parties",
        )

    def view(self, *parties: str) -> View:
        """Return what these parties know together: messages, their secrets and the public terms."""
        raise ConfigError(
            f"this run of {self.system.name} has no parties, and so no views.",
            rule="systems.view.no-parties",
        )

    def tap(self) -> View:
        """Return all messages between parties, as an observer of the network sees them."""
        raise ConfigError(
            f"this run of {self.system.name} has no messages between roles.",
            rule="systems.tap.no-messages",
        )

    def truth(self) -> Mapping[str, Any]:
        """Return what only the simulation knows, such as true means.

        An audit scores attacks with it: it compares the estimate of an attack with the truth.
        """
        return {}

    @abstractmethod
    def record(self, status: str | None = None) -> Record:
        """Return the record of the run so far.

        By default the status of the record is "finished" if the run is done, else "running".
        """

    def record_interrupted(self) -> Record:
        """Return the record of a run that was interrupted, with status "interrupted".

        A run that writes files, such as a state to continue from, writes them first.
        """
        return self.record("interrupted")

    def make_record(self, status: str | None, **fields: Any) -> Record:
        """Make a record with `fields`, and with fields that are the same in records of all systems.

        `status` is the status to store, such as "interrupted". None means "finished" if the run is
        done, else "running".
        """
        return Record(
            kind=self.system.name,
            config=self.settings.config(),
            problem=self.settings.problem(),
            level=self.system.level_of(self.settings),
            leaks=not_protected(self.system, self.settings),
            status=status or ("finished" if self.done else "running"),
            seconds=self.seconds,
            **fields,
        )

    # Saved moments --------------------------------------------------------------------------------

    @abstractmethod
    def save(self) -> Any:
        """Return a copy of the present state. Only this run, in this process, can `load` it.

        The copy is not for files: it contains secrets and objects of this process.
        """

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Restore a state that `save` of this run returned, before or after the present state."""


class RolesRun(Run):
    """A run whose roles exchange messages in this process, one seed after the other.

    A system implements `_role_maker`, `_make_world`, `_seed_horizon`, `_reply` and `record`.
    """

    def __init__(
        self,
        system: AnySystem,
        settings: RunSettings,
        *,
        seeds: Sequence[int] | None = None,
        world: Literal["outside"] | None = None,
        transcript: int = 0,
    ) -> None:
        super().__init__(system, settings, seeds)
        self.outside = world == "outside"
        self._transcript_limit = transcript
        self.memories: list[MemoryRun] = []
        """Roles and messages of each seed so far, the current seed last."""
        self.worlds: list[Any] = []
        """The world (`_make_world`) of each seed so far, the current seed last."""
        self._role_makers: list[Callable[[], list[Role]]] = []
        self._over = False
        self._begin_seed(0)

    @abstractmethod
    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        """Return a function that makes the roles of a seed. It takes no arguments.

        Each call makes new roles in the same initial state. `load` calls the function, and puts the
        saved state into the new roles.
        """

    @abstractmethod
    def _make_world(self, seed: int) -> Any:
        """Make the world of a seed. Its attribute `reached` is the number of decisions so far.

        A simulated world answers the requests of roles. If the answers come from outside
        (`outside`), the world only counts decisions and records curves: its method `answered` is
        called with each reward.
        """

    @property
    @abstractmethod
    def _seed_horizon(self) -> int:
        """Number of decisions of one seed."""

    @abstractmethod
    def _reply(self, ask: Ask, reward: Any) -> Message:
        """Return the message that answers the request `ask` with a reward from outside."""

    def _check_note(self, note: Note) -> None:
        """Raise an error if a role's note is invalid. By default nothing is checked."""

    @property
    def public_terms(self) -> Mapping[str, Any]:
        """Terms that all parties know."""
        return {}

    def _begin_seed(self, number: int) -> None:
        """Make the roles and the world of a seed, which becomes the current one.

        `number` is the position of the seed in `seeds`.
        """
        seed = self.seeds[number]
        make_roles = self._role_maker(seed)
        self._role_makers.append(make_roles)
        # The world comes first: `_answering_world` reads `worlds[-1]`.
        self.worlds.append(self._make_world(seed))
        memory = MemoryRun(make_roles(), self._answering_world, transcript=self._transcript_limit)
        self.memories.append(memory)

    @property
    def _answering_world(self) -> World | None:
        """The simulated world that answers the roles; None if the answers come from outside."""
        return None if self.outside else self.world

    @property
    def memory(self) -> MemoryRun:
        """Roles and messages of the current seed."""
        return self.memories[-1]

    @property
    def world(self) -> Any:
        """The world of the current seed (`_make_world`)."""
        return self.worlds[-1]

    @property
    def horizon(self) -> int:
        """Number of decisions of the whole run, all seeds together."""
        return self._seed_horizon * len(self.seeds)

    @property
    def time(self) -> int:
        """Number of decisions so far, all seeds together."""
        # All seeds before the current one have made all their decisions.
        return self._seed_horizon * (len(self.memories) - 1) + self._seed_time

    @property
    def _seed_time(self) -> int:
        """Number of decisions so far in the current seed."""
        return int(self.world.reached)

    @property
    def done(self) -> bool:
        """Whether all roles of all seeds have finished."""
        return self._over

    @property
    def asks(self) -> Mapping[int, Ask]:
        """Requests that the caller must `answer`, by number; empty if the world is simulated."""
        return self.memory.asks

    def answer(self, number: int, reward: Any) -> None:
        """Answer the request of this number (`asks`) with a reward from the outside world."""
        if number not in self.asks:
            numbers = ", ".join(map(str, self.asks)) or "none"
            raise ConfigError(
                f"there is no open ask {number}. Open: {numbers}.", rule="systems.number.not-open"
            )
        ask = self.asks[number]
        with self._count_seconds():
            self.memory.answer(number, self._reply(ask, reward))
        # This world did not give the answer: it counts the decision and records curves.
        self.world.answered(ask, reward)

    def _advance(self, n: int) -> None:
        until = self._seed_time + n
        # Each turn of the loop delivers messages, until a role has a note.
        for note in self.memory:
            self._process_note(note)
            # After the last decision of a seed, its remaining messages are delivered too.
            if until < self._seed_horizon and self._seed_time >= until:
                return
        self._end_seed()

    def deliver(self, *, explain: bool = True, until: int | None = None) -> Delivery | None:
        """Deliver one message, and return it.

        The arguments are those of `Run.deliver`. Returns None if the run is over, stopped at
        `until`, or waits for the outside world.
        """
        with self._count_seconds():
            delivery = self._deliver_next(until)
        if delivery is None:
            return None
        for note in delivery.notes:
            self._process_note(note)
        # `delivery` has the decisions of the current seed; the result has those of all seeds.
        delivery = delivery._replace(time=self.time)
        if not explain:
            return delivery
        from posse.systems.modules import scene_of

        return delivery._replace(explanation=scene_of(self.system).explain(self, delivery))

    def _deliver_next(self, until: int | None) -> Delivery | None:
        """Deliver the next message, and begin the next seed if the current one is over."""

        def at_limit() -> bool:
            return until is not None and self.time >= until

        # A run that was at the limit before this call continues; any other stops at the limit.
        stop_condition = None if at_limit() else at_limit
        delivery = self.memory.deliver(stop_condition)
        if delivery is not None:
            return delivery
        if at_limit():
            self.memory.time = self._seed_time
            return None
        # The current seed has no message left.
        self._end_seed()
        return None if self._over else self.memory.deliver()

    def _process_note(self, note: Note) -> None:
        """Check a role's note, and set the time of the next messages to the decisions so far."""
        self.memory.time = self._seed_time
        self._check_note(note)

    def _end_seed(self) -> None:
        """Begin the next seed, or end the run after the last one.

        If the current seed waits for the outside world, it does not end: this only sets the time of
        its next messages.
        """
        self.memory.time = self._seed_time
        if self.asks:
            return
        if len(self.memories) < len(self.seeds):
            self._begin_seed(len(self.memories))
        else:
            self._over = True

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each party's role, by the name of the party."""
        return {name: role.kind for name, role in self.memory.roles.items()}

    def state(self, party: str) -> dict[str, Any]:
        """Return what the operator of a party may see."""
        check.one_of(self.parties, party=party)
        return self.memory.roles[party].state()

    def view(self, *parties: str) -> View:
        """Return what these parties know together about the current seed."""
        for party in parties:
            check.one_of(self.parties, party=party)
        transcript = self._transcript
        secrets = {party: self.memory.roles[party].save() for party in parties}
        entries = transcript.view(*parties)
        return View(parties, entries, secrets, self._terms_for_views, transcript.forgotten)

    def part_for_attacks(self, message: Message) -> Message:
        """Return a message without the fields that no attack reads; by default the whole message.

        A system with long messages overrides this, so that the transcript of an audit fits into
        memory.
        """
        return message

    def store_only_parts_for_attacks(self) -> None:
        """From now on, store only `part_for_attacks` of each message of the current seed."""
        if self.memory.transcript is not None:
            self.memory.transcript.truncate = self.part_for_attacks

    def tap(self) -> View:
        """Return all messages that crossed the network in the current seed."""
        transcript = self._transcript
        # The world's answers do not cross the network. Requests to the world are no messages, so the
        # transcript does not have them.
        entries = [entry for entry in transcript if entry.sender != WORLD]
        return View(
            parties=(),
            entries=entries,
            secrets={},
            public=self._terms_for_views,
            forgotten=transcript.forgotten,
        )

    @property
    def _transcript(self) -> Transcript:
        """The messages of the current seed; raises an error if the run stores none."""
        transcript = self.memory.transcript
        if transcript is None:
            raise ConfigError(
                f"this run of {self.system.name} has no transcript. Start it with posse.start, or "
                "with transcript=100000.",
                rule="systems.transcript.missing",
            )
        return transcript

    @property
    def _terms_for_views(self) -> dict[str, Any]:
        """The public terms of the run, with the name of the system; views contain both."""
        return {"system": self.system.name, **self.public_terms}

    def traffic(self, seeds: int | None = None) -> dict[Hop, list[int]]:
        """Return the numbers of messages and of bytes, by hop.

        The numbers are sums over the first `seeds` seeds; None for all.
        """
        sums_by_hop: dict[Hop, list[int]] = {}
        for memory in self.memories[:seeds]:
            for hop, counts in memory.hops.items():
                sums = sums_by_hop.setdefault(hop, [0, 0])
                sums[0] += counts.messages
                sums[1] += counts.bytes
        return sums_by_hop

    def role_seconds(self, seeds: int | None = None) -> dict[str, float]:
        """Return CPU seconds by kind of role, summed over the first `seeds` seeds; None for all."""
        total: dict[str, float] = {}
        for memory in self.memories[:seeds]:
            for kind, seconds in memory.seconds.items():
                total[kind] = total.get(kind, 0.0) + seconds
        return total

    def save(self) -> Any:
        """Return a copy of the present state. Only this run, in this process, can `load` the copy.

        Earlier seeds no longer change, so only the current seed is copied.
        """
        return {
            "over": self._over,
            "seconds": self.seconds,
            "role_makers": list(self._role_makers),
            "memories": list(self.memories),
            "worlds": list(self.worlds),
            "current_memory": self.memory.save(),
            "current_world": fork(self.world),
        }

    def load(self, saved: Any) -> None:
        """Restore a state that `save` of this run returned, before or after the present state.

        `saved` stays as it is, so that the same state can be restored again.
        """
        self._over = saved["over"]
        self.seconds = saved["seconds"]
        self._role_makers = list(saved["role_makers"])
        # The last memory and the last world belong to the seed that was current. The run will change
        # them, and `saved` must stay as it is. So the run gets copies.
        *finished_memories, last_memory = saved["memories"]
        self.memories = [*finished_memories, copy(last_memory)]
        self.worlds = [*saved["worlds"][:-1], fork(saved["current_world"])]
        # `self.memory` is the copy of the last memory. Its `load` puts the saved state of each role
        # into a new role.
        new_roles = self._role_makers[-1]()
        self.memory.load(saved["current_memory"], new_roles, self._answering_world)
