"""What can be asked of a model under an engine: estimate, fit, compare, plot, chat, explain, batch."""
