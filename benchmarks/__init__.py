"""fxminify's reducer side by side with PyTorch's minifier, on graphs of real models. See README.md."""
