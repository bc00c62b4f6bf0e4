"""What the example scripts share: data, training, results."""
