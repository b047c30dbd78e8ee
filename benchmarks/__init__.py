"""What we claim about speed and accuracy, a folder for each paper or claim. `python -m benchmarks` lists them."""
