"""Full-size task families: families/AREA/NAME.py, one module each."""
