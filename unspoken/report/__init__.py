"""What people get to see: the model as a file, the certificate, summaries and plots."""
