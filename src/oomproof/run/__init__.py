"""What a training imports while it runs."""
