"""What people look at: sums and tables for the terminal, a plot, and one page of everything."""

from palearn.report.overview import errors, fates, history, plot, summary, summed
from palearn.report.page import page

__all__ = ["errors", "fates", "history", "page", "plot", "summary", "summed"]
