"""Who is who: the customer's authority, enrolment with single-use tokens, and the identities that
come of it.

| file | holds |
|---|---|
| `names` | run, role and name of a party, and how a certificate spells them |
| `making` | certificates and revocation lists as values |
| `tokens` | tokens, and the requests and answers that they authenticate |
| `register` | what the authority remembers: tokens and certificates |
| `authority` | the authority's folder, and its decision on a request |
| `enrolment` | the party's folder while it enrols, the call it makes, and the authority's port |
| `identity` | what others need: an identity, a peer's certificate checked, TLS contexts |
"""
