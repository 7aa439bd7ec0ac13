"""The learner and the inference engine: Qwen3.5-MoE in JAX with exact token and routing replay."""
