"""Times, dates and what runs when."""
