"""Integer encoding, integer noise and the secret randomness behind it."""
