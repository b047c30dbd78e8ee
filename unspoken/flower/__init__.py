"""A study over a Flower federation: `apps` has what Flower's programs start, a ServerApp and a ClientApp.

`flwr run` names the study to the coordinator, which is the ServerApp (`coordinating`). A SuperNode's own configuration
names the file that says with what its site takes part (`site`): study, key, records, ledger and policy. Nothing of it
comes from the coordinator, and nothing that the coordinator sends is run. `taking_part` answers its questions, and
`grid` hands bytes to Flower.
"""
