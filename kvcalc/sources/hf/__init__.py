"""config.json and the Hugging Face Hub: what they say of a model."""
