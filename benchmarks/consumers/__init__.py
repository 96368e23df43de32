"""What people use today instead; each script runs in a venv of its own, without palearn."""
