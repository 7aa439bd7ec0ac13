"""Parts of the command line (launch.py) that have commands of their own."""
