"""The papers' tables beside ours, on data in a folder that the reader has (:mod:`benchmarks.papers.data`)."""
