"""Output for people: the model file, the certificate, summaries and plots."""
