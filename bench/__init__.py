"""The benchmarks of `make bench`. They print figures as Markdown tables, and write them to docs/benchmarks.md."""
