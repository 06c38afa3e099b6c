"""What `make bench` measures. Figures are printed as Markdown tables; docs/benchmarks.md keeps them."""
