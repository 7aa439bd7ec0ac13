"""Games, puzzles and simulations."""
