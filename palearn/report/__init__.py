"""What people look at: sums and tables for the terminal, plots, one page of everything, and the live view."""
