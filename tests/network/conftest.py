"""The fuzzing program is no test: it needs atheris and rewrites the decoders it drives."""

collect_ignore = ["fuzz_decoders.py"]
