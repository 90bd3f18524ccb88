"""Who is who: the customer's authority, enrolment with single-use tokens, and the identities that come of it.

| file | holds |
|---|---|
| `names` | run, role and name of a party, and how a certificate spells them |
| `making` | certificates and revocation lists as values |
| `tokens` | the text that lets one party enrol once |
| `register` | what the authority remembers: tokens and certificates |
| `authority` | the authority's folder: key, certificate, register |
| `requests` | request, answer and refusal: bytes in, bytes out |
| `desk` | the authority's decision on a request |
| `enrolment` | the port on which requests come in, and the call that makes one |
| `party` | the party's folder while it enrols |
| `identity` | what others need: an identity, a peer's certificate checked, TLS contexts |
"""
