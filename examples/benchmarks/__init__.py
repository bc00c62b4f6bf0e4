"""What conditioning costs: time and memory, beside stock models and plain products."""
