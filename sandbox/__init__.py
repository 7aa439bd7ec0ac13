"""The terminal rollout service: tasks, sandboxes, episodes, rewards and the store. Imports no JAX."""
