"""What operations make of shapes: rules, and what is remembered of earlier answers."""
