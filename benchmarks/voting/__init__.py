"""The tables of the voting and multiparty papers, and the speed of a vote."""
