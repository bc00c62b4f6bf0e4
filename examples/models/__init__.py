"""Reference models in plain Keras, each with a `conditioning` argument."""
