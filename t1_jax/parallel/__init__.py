"""What one device does as part of a mesh: collectives, the parts of parameters, rows and experts it holds.

The train step is one program that every device runs on its own part (`jax.shard_map`), so the model's code
is the code of a device. Gradients are taken inside of that program: the objective is the SUM over devices of
what each one returns, every device's copy of a value is a variable of its own, and each collective is a
linear map whose transpose JAX knows (all-gather and reduce-scatter, all-to-all and itself, a sum and
itself). A value that n devices compute alike must therefore enter the objective n times with weight 1/n, and
the gradient of a parameter that n devices hold is the sum over their copies.
"""
