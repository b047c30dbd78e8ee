"""Roles on machines of their own: a WebSocket over TLS from each party and helper to the coordinator.

From the bottom up: `frames` (what is on the wire), `link` (messages in pieces, over connections that may be cut),
`sign_in` (who is who), `tls` (certificates), `relay` (the coordinator's side without sockets), `door` (the port, which
bounds strangers), `presence` (a participant's connection), `loading` (what takes long the first time), `server` and
`client`. `status` is what may be told of a study, and `window` shows it as a `page` and as `metrics`.
"""
