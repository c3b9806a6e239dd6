"""The Bayesian-optimization autotuning service for LLM serving on vLLM."""
