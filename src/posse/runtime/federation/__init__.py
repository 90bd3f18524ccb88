"""A federation that lives: members who enrol once, and run after run as each of them consents.

| file | holds |
|---|---|
| `consent` | the file of a service, what a member agrees to, and the ledger of what its runs have asked |
| `talk` | a signed proposal, and what founder and member tell each other on the control connection |
| `listener` | one listener for all runs of a party and for the control connection |
| `member` | a member's service: it answers proposals, takes part in runs, renews its certificate |
| `service` | the process: connections, commands of its operator |
| `care` | what its operator looks at and keeps: doctor, metrics, backup |
| `founder` | what the founder's service does beside: the queue of runs, renewals, the revocation list |

    customer$ posse federation create hospitals
    customer$ posse party serve hospitals/customer.toml    # the authority, the queue, its own part
    clinic-b$ posse party enrol --token-file t
    clinic-b$ posse party serve clinic-b.toml              # calls the founder, and stays
    customer$ posse federation submit march.toml --at hospitals/customer.toml    # signs and follows

Founder and member send each other their whole state, not changes of it: a *sheet* (which runs there
are for this member, and how far each is) and a *report* (what the member made of each). Both are on
the disk before they are sent, so a kill at any point costs a repetition and nothing else.
"""
